//! RFC 3339 times as the API writes them: seconds for Time, microseconds for MicroTime, in UTC.

use crate::tree::Str;

/// The canonical text of a Time.
pub fn canonical(text: &str) -> Result<Str, String> {
    Ok(Str::new(text))
}

/// The canonical text of a MicroTime.
pub fn canonical_micro(text: &str) -> Result<Str, String> {
    Ok(Str::new(text))
}

/// Seconds since the Unix epoch as `2006-01-02T15:04:05Z`.
pub fn format_seconds(seconds: i64) -> Str {
    let days = seconds.div_euclid(86_400);
    let rest = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    Str::from(format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60))
}

/// Year, month and day of a count of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_are_formatted_in_utc() {
        assert_eq!(super::format_seconds(0), "1970-01-01T00:00:00Z");
        assert_eq!(super::format_seconds(1_709_210_096), "2024-02-29T12:34:56Z");
    }
}
