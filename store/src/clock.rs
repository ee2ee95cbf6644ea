//! The door to the wall clock, which only expiries need: a test turns it by hand.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync + 'static {
    /// Time since the Unix epoch.
    fn now(&self) -> Duration;
    /// How long a thread may sleep to wake at `at`; `None` if the clock itself will wake it.
    fn sleep_until(&self, at: Duration) -> Option<Duration>;
    /// Asks to be woken whenever the clock is turned by hand; the machine's clock never calls.
    fn on_turn(&self, _wake: Arc<dyn Fn() + Send + Sync>) {}
}

/// The clock of the machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn sleep_until(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(self.now()))
    }
}

/// The clock of the tokio runtime, which a test can pause: it starts with the machine's time.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClock {
    start: tokio::time::Instant,
    epoch: Duration,
}

impl Default for RuntimeClock {
    fn default() -> Self {
        Self::starting_at(SystemClock.now())
    }
}

impl RuntimeClock {
    /// Shows this time now.
    pub fn starting_at(epoch: Duration) -> Self {
        Self { start: tokio::time::Instant::now(), epoch }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Duration {
        self.epoch + self.start.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(self.now()))
    }
}

/// A clock that stands until it is turned.
#[derive(Default)]
pub struct ManualClock {
    state: stdx::sync::Mutex<ManualState>,
}

#[derive(Default)]
struct ManualState {
    now: Duration,
    wakers: Vec<Arc<dyn Fn() + Send + Sync>>,
}

impl ManualClock {
    pub fn at(now: Duration) -> Arc<Self> {
        Arc::new(Self { state: stdx::sync::Mutex::new(ManualState { now, wakers: Vec::new() }) })
    }

    pub fn advance(&self, by: Duration) {
        let wakers = {
            let mut state = self.hold();
            state.now += by;
            state.wakers.clone()
        };
        wakers.iter().for_each(|wake| wake());
    }

    fn hold(&self) -> stdx::sync::MutexGuard<'_, ManualState> {
        self.state.lock()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.hold().now
    }

    fn sleep_until(&self, _at: Duration) -> Option<Duration> {
        None
    }

    fn on_turn(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.hold().wakers.push(wake);
    }
}
