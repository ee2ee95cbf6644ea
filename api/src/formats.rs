//! Formats of strings in OpenAPI schemas, as upstream's validation has them.

use crate::{base64, time};

/// Whether a text is base64 with padding, without line ends, and not empty.
pub fn is_base64(text: &str) -> bool {
    !text.is_empty() && text.len().is_multiple_of(4) && !text.contains(['\n', '\r']) && base64::decode(text).is_ok()
}

/// Whether a text is a date such as `2006-01-02`.
pub fn is_date(text: &str) -> bool {
    text.len() == 10 && time::parse(&format!("{text}T00:00:00Z")).is_ok()
}

/// Whether a text is a date and a time of RFC 3339, with the letters in either case. Any character may precede the
/// digits of a fraction: upstream's pattern has a dot without an escape there.
pub fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    is_date(date) && is_clock(clock.as_bytes()) && (is_zone(rest) || is_zone(after_fraction(rest)))
}

fn is_clock(clock: &[u8]) -> bool {
    let is_field = |field: &[u8], limit: &[u8]| field.iter().all(u8::is_ascii_digit) && field <= limit;
    let has_colons = clock[2] == b':' && clock[5] == b':';
    has_colons && is_field(&clock[..2], b"23") && is_field(&clock[3..5], b"59") && is_field(&clock[6..], b"59")
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        b"z" => true,
        [b'+' | b'-', h, i, b':', m, n] => [h, i, m, n].iter().all(|digit| digit.is_ascii_digit()),
        _ => false,
    }
}

/// What follows one character and at least one digit; empty if there is none.
fn after_fraction(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    let rest = characters.as_str().trim_start_matches(|digit: char| digit.is_ascii_digit());
    if rest.len() < characters.as_str().len() { rest } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(is_valid: fn(&str) -> bool, valid: &[&str], invalid: &[&str]) {
        valid.iter().for_each(|text| assert!(is_valid(text), "{text}"));
        invalid.iter().for_each(|text| assert!(!is_valid(text), "{text}"));
    }

    #[test]
    fn accepts_and_rejects() {
        check(is_base64, &["YQ==", "YWJj"], &["", "YQ", "YQ=", "YQ==YQ==", "-_-_", "YWJj\n", "Y===", "===="]);
        check(is_date, &["2024-02-29"], &["2023-02-29", "2024-2-9", "2024-02-29Z", ""]);
        let valid = [
            "2024-01-02T03:04:05Z",
            "2024-01-02t23:59:59.1+02:00",
            "2024-01-02T03:04:05z",
            "2024-01-02T03:04:05-99:99",
        ];
        let invalid = [
            "yesterday",
            "2024-01-02",
            "2024-13-02T03:04:05Z",
            "2024-01-02T24:04:05Z",
            "2024-01-02T03:60:05Z",
            "2024-01-02T03:04:60Z",
            "2024-01-02T03:04:05",
            "2024-01-02T03:04:05.Z",
            "2024-01-02T03:04:05+2:00",
            "2024-01-02T03:04:05ü",
            "2024-01-02T03:04:é",
            "2024-01-02T03-04-05Z",
        ];
        check(is_date_time, &valid, &invalid);
    }
}
