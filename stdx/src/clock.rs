//! The wall clock, which a test or a simulation replaces by its own.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sync::{Mutex, MutexGuard};

/// The longest pause of a timer; see [`timer_pause`] for the reason.
const LONGEST_TIMER_PAUSE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// A pause that can be added to an instant. Pauses come from objects and requests, up to `i64::MAX` seconds, and
/// `Instant + Duration` panics when it overflows; tokio's timers add to an instant themselves.
pub fn timer_pause(pause: Duration) -> Duration {
    pause.min(LONGEST_TIMER_PAUSE)
}

/// A point in time, in seconds and nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since the Unix epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds since the second.
    pub nanos: u32,
}

impl From<Duration> for Timestamp {
    fn from(since_epoch: Duration) -> Timestamp {
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        Timestamp { seconds, nanos: since_epoch.subsec_nanos() }
    }
}

/// A source of the time of day.
pub trait Clock: Send + Sync + 'static {
    /// The time since the Unix epoch.
    fn since_epoch(&self) -> Duration;

    /// The same as a timestamp.
    fn now(&self) -> Timestamp {
        self.since_epoch().into()
    }

    /// How long a thread may sleep to wake at `at`, since the epoch; `None` if the clock itself will wake it.
    fn sleep_until(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(self.since_epoch()))
    }

    /// Registers a callback for every time at which the clock is set by hand; the system's clock never calls.
    fn on_advance(&self, _wake: Arc<dyn Fn() + Send + Sync>) {}
}

/// The clock of the machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn since_epoch(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// A clock that several owners read; the system's clock unless another one is set.
#[derive(Clone)]
pub struct SharedClock(pub Arc<dyn Clock>);

impl Default for SharedClock {
    fn default() -> SharedClock {
        SharedClock(Arc::new(SystemClock))
    }
}

impl Deref for SharedClock {
    type Target = dyn Clock;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for SharedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedClock")
    }
}

/// The clock of the tokio runtime, which a test can pause and advance.
#[cfg(feature = "tokio")]
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClock {
    start: tokio::time::Instant,
    epoch: Duration,
}

#[cfg(feature = "tokio")]
impl RuntimeClock {
    /// A clock that shows this time, since the Unix epoch, now.
    pub fn starting_at(epoch: Duration) -> RuntimeClock {
        RuntimeClock { start: tokio::time::Instant::now(), epoch }
    }
}

#[cfg(feature = "tokio")]
impl Default for RuntimeClock {
    fn default() -> RuntimeClock {
        RuntimeClock::starting_at(SystemClock.since_epoch())
    }
}

#[cfg(feature = "tokio")]
impl Clock for RuntimeClock {
    fn since_epoch(&self) -> Duration {
        self.epoch + self.start.elapsed()
    }
}

/// A clock that stands still until a test advances it.
#[derive(Default)]
pub struct ManualClock {
    state: Mutex<ManualState>,
}

#[derive(Default)]
struct ManualState {
    now: Duration,
    wakers: Vec<Arc<dyn Fn() + Send + Sync>>,
}

impl ManualClock {
    /// A clock that shows this time, since the Unix epoch.
    pub fn at(now: Duration) -> Arc<ManualClock> {
        Arc::new(ManualClock { state: Mutex::new(ManualState { now, wakers: Vec::new() }) })
    }

    /// Moves the time forward and wakes the threads that wait for it.
    pub fn advance(&self, by: Duration) {
        let wakers = {
            let mut state = self.state();
            state.now += by;
            state.wakers.clone()
        };
        wakers.iter().for_each(|wake| wake());
    }

    fn state(&self) -> MutexGuard<'_, ManualState> {
        self.state.lock()
    }
}

impl Clock for ManualClock {
    fn since_epoch(&self) -> Duration {
        self.state().now
    }

    fn sleep_until(&self, _at: Duration) -> Option<Duration> {
        None
    }

    fn on_advance(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.state().wakers.push(wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_manual_clock_wakes_its_waiters() {
        let clock = ManualClock::at(Duration::from_millis(1500));
        assert_eq!(clock.now(), Timestamp { seconds: 1, nanos: 500_000_000 });
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        clock.on_advance(Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        clock.advance(Duration::from_secs(2));
        assert_eq!((clock.now().seconds, calls.load(Ordering::Relaxed)), (3, 1));
        assert_eq!(clock.sleep_until(Duration::from_secs(9)), None);
    }

    #[test]
    fn a_timer_pause_never_overflows_an_instant() {
        let now = std::time::Instant::now();
        let longest = now.checked_add(timer_pause(Duration::MAX)).and_then(|at| at.checked_add(Duration::from_secs(1)));
        assert!(longest.is_some());
        assert_eq!(timer_pause(Duration::from_secs(86_400)), Duration::from_secs(86_400));
    }

    #[test]
    fn the_system_clock_says_how_long_to_sleep() {
        let now = SystemClock.since_epoch();
        assert_eq!(SystemClock.sleep_until(now), Some(Duration::ZERO));
        let wait = SystemClock.sleep_until(now + Duration::from_secs(60)).expect("a duration");
        assert!(wait > Duration::from_secs(30) && wait <= Duration::from_secs(60), "{wait:?}");
    }
}
