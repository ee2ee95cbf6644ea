//! The time of day, for ages and the request log.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The current time in the format of the API.
pub(crate) fn now_text() -> String {
    api::time::format_seconds(now()).to_string()
}

/// Month, day, and the time of day with microseconds, in UTC.
pub(crate) fn log_time() -> (i64, i64, String) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    let (_, month, day) = api::time::civil(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let time = format!("{:02}:{:02}:{:02}.{:06}", of_day / 3600, of_day / 60 % 60, of_day % 60, since.subsec_micros());
    (month, day, time)
}
