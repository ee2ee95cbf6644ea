//! Conversions between API times and the clock.

use std::time::Duration;

use api::time::Timestamp;

/// The duration from `now` to a Unix time; None if it has passed.
pub(crate) fn until(now: Timestamp, seconds: i64) -> Option<Duration> {
    let whole = u64::try_from(seconds.saturating_sub(now.seconds)).ok()?;
    Duration::from_secs(whole).checked_sub(Duration::from_nanos(now.nanos.into())).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_times_are_none() {
        let now = Timestamp { seconds: 10, nanos: 500_000_000 };
        assert_eq!(until(now, 9), None);
        assert_eq!(until(now, 10), None);
        assert_eq!(until(now, 11), Some(Duration::from_millis(500)));
        assert_eq!(until(Timestamp { seconds: 10, nanos: 0 }, 10), None);
    }
}
