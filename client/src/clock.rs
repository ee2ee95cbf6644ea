//! The door to the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::time::Timestamp;
use tokio::time::Instant;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// The clock of the tokio runtime, which a test can pause and turn.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClock {
    start: Instant,
    epoch: Duration,
}

impl RuntimeClock {
    /// Shows this time, since the Unix epoch, now.
    pub fn starting_at(epoch: Duration) -> RuntimeClock {
        RuntimeClock { start: Instant::now(), epoch }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        timestamp(self.epoch + self.start.elapsed())
    }
}

fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp { seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX), nanos: since_epoch.subsec_nanos() }
}
