//! The door to the wall clock: a simulation puts its own behind it.

use std::fmt;
use std::sync::Arc;

use store::clock::{Clock, SystemClock};

/// What the server takes for the time of day.
#[derive(Clone)]
pub struct WallClock(pub Arc<dyn Clock>);

impl WallClock {
    /// Seconds since the Unix epoch.
    pub fn seconds(&self) -> i64 {
        i64::try_from(self.0.now().as_secs()).unwrap_or(i64::MAX)
    }

    pub fn timestamp(&self) -> api::time::Timestamp {
        api::time::Timestamp { seconds: self.seconds(), nanos: self.0.now().subsec_nanos() }
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock(Arc::new(SystemClock))
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}
