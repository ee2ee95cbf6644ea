//! Times as the runtime and statuses count them.

use std::time::Duration;

use stdx::clock::Clock;

/// Nanoseconds of a second.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// Nanoseconds since the epoch.
pub(crate) fn unix_nanos(clock: &dyn Clock) -> i64 {
    let now = clock.now();
    now.seconds * SECOND + i64::from(now.nanos)
}

/// Whether a pause of this length still lasts. If the clock was set back meanwhile, more than its length would be left:
/// the difference is not waited for.
pub(crate) fn is_within(now: i64, until: i64, length: Duration) -> bool {
    let left = until.saturating_sub(now);
    left > 0 && left <= nanos(length).saturating_add(SECOND)
}

pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).saturating_mul(SECOND)
}
