//! RFC 3339 times as the API writes them: seconds for Time, microseconds for MicroTime, in UTC; and Go durations.
//! Errors have the messages of Go's parser. The clock is not read here.

use std::fmt::Write;

use crate::tree::Str;

pub use stdx::clock::Timestamp;

/// Text that is not a time. The texts in the fields are quoted like Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("parsing time {text}: {what} out of range")]
    OutOfRange { text: String, what: &'static str },
    /// An element of the layout does not match the rest of the text.
    #[error("parsing time {text} as \"{layout}\": cannot parse {rest} as \"{element}\"")]
    Mismatch { text: String, layout: &'static str, rest: String, element: &'static str },
    #[error("parsing time {text}: extra text: {extra}")]
    ExtraText { text: String, extra: String },
}

/// Text that is not a duration. The texts in the fields are quoted like Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration {0}")]
    Invalid(String),
    #[error("time: missing unit in duration {0}")]
    MissingUnit(String),
    #[error("time: unknown unit {unit} in duration {text}")]
    UnknownUnit { unit: String, text: String },
}

/// The canonical text of a Time.
pub(crate) fn canonical(text: &str) -> Result<Str, ParseError> {
    let time = parse(text)?;
    // Twenty bytes ending in Z have no fraction and no offset: they are canonical.
    let canonical = text.len() == "2006-01-02T15:04:05Z".len() && text.ends_with('Z');
    Ok(if canonical { Str::new(text) } else { format_seconds(time.seconds) })
}

/// The canonical text of a MicroTime.
pub(crate) fn canonical_micro(text: &str) -> Result<Str, ParseError> {
    parse_micro(text).map(format_micros)
}

/// RFC 3339 with any offset and fraction.
pub fn parse(text: &str) -> Result<Timestamp, ParseError> {
    read(text, &TIME, "2006-01-02T15:04:05Z07:00")
}

/// RFC 3339 with exactly six digits of a second.
pub fn parse_micro(text: &str) -> Result<Timestamp, ParseError> {
    read(text, &MICRO_TIME, "2006-01-02T15:04:05.000000Z07:00")
}

/// Seconds since the Unix epoch as `2006-01-02T15:04:05Z`.
pub fn format_seconds(seconds: i64) -> Str {
    let mut text = TimeBuffer::new(seconds);
    text.push(b'Z');
    Str::new(text.as_str())
}

/// `2006-01-02T15:04:05.000000Z`
pub fn format_micros(time: Timestamp) -> Str {
    Str::new(micros(time).as_str())
}

/// Appends the output of `format_micros`.
pub fn write_micros(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(micros(time).as_str().as_bytes());
}

fn micros(time: Timestamp) -> TimeBuffer {
    let mut text = TimeBuffer::new(time.seconds);
    text.push(b'.');
    text.digits(u64::from(time.nanos / 1000), 6);
    text.push(b'Z');
    text
}

/// A time being formatted without allocation, since every object and audit event has some.
struct TimeBuffer {
    bytes: [u8; 48],
    length: usize,
}

impl TimeBuffer {
    fn new(seconds: i64) -> TimeBuffer {
        let rest = seconds.rem_euclid(86_400);
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let mut text = TimeBuffer { bytes: [0; 48], length: 0 };
        if year < 0 {
            text.push(b'-');
        }
        let year = year.unsigned_abs();
        text.digits(year, (year.checked_ilog10().unwrap_or(0) as usize + 1).max(4));
        for (before, value) in
            [(b'-', month), (b'-', day), (b'T', rest / 3600), (b':', rest / 60 % 60), (b':', rest % 60)]
        {
            text.push(before);
            text.digits(value.unsigned_abs(), 2);
        }
        text
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    /// A zero-padded number.
    fn digits(&mut self, mut value: u64, width: usize) {
        for place in self.bytes[self.length..self.length + width].iter_mut().rev() {
            *place = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.length += width;
    }

    fn as_str(&self) -> &str {
        // Digits and signs are ASCII.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

/// The weekday of a day since 1970-01-01; 0 is Sunday.
pub fn weekday(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn civil(days: i64) -> (i64, i64, i64) {
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

/// Days since 1970-01-01.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The number of days in a month.
pub fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// One element of a layout, with its name in Go's parser.
#[derive(Clone, Copy)]
enum LayoutElement {
    Text(&'static str),
    Year,
    Month,
    Day,
    Hour,
    Minute,
    /// A fraction may follow if the layout has none.
    Second {
        free_fraction: bool,
    },
    Micros,
    Zone,
}

use LayoutElement::{Day, Hour, Micros, Minute, Month, Second, Text, Year, Zone};

static TIME: [LayoutElement; 12] = [
    Year,
    Text("-"),
    Month,
    Text("-"),
    Day,
    Text("T"),
    Hour,
    Text(":"),
    Minute,
    Text(":"),
    Second { free_fraction: true },
    Zone,
];
static MICRO_TIME: [LayoutElement; 13] = [
    Year,
    Text("-"),
    Month,
    Text("-"),
    Day,
    Text("T"),
    Hour,
    Text(":"),
    Minute,
    Text(":"),
    Second { free_fraction: false },
    Micros,
    Zone,
];

impl LayoutElement {
    fn name(self) -> &'static str {
        match self {
            Text(text) => text,
            Year => "2006",
            Month => "01",
            Day => "02",
            Hour => "15",
            Minute => "04",
            Second { .. } => "05",
            Micros => ".000000",
            Zone => "Z07:00",
        }
    }
}

#[derive(Default)]
struct CivilTime {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: u32,
    offset_seconds: i64,
}

enum ElementError {
    /// The element does not match the text.
    Bad,
    Range(&'static str),
}

fn read(text: &str, elements: &[LayoutElement], layout: &'static str) -> Result<Timestamp, ParseError> {
    let mut clock = CivilTime::default();
    let mut rest = text.as_bytes();
    for piece in elements {
        match read_piece(*piece, rest, &mut clock) {
            Ok(next) => rest = next,
            Err(ElementError::Range(what)) => return Err(ParseError::OutOfRange { text: go_quote(text), what }),
            Err(ElementError::Bad) => {
                let rest = go_quote(&String::from_utf8_lossy(rest));
                return Err(ParseError::Mismatch { text: go_quote(text), layout, rest, element: piece.name() });
            }
        }
    }
    if !rest.is_empty() {
        let extra = go_quote(&String::from_utf8_lossy(rest));
        return Err(ParseError::ExtraText { text: go_quote(text), extra });
    }
    if clock.day < 1 || clock.day > days_in(clock.year, clock.month) {
        return Err(ParseError::OutOfRange { text: go_quote(text), what: "day" });
    }
    let days = days_of(clock.year, clock.month, clock.day);
    let of_day = clock.hour * 3600 + clock.minute * 60 + clock.second;
    Ok(Timestamp { seconds: days * 86_400 + of_day - clock.offset_seconds, nanos: clock.nanos })
}

fn read_piece<'a>(piece: LayoutElement, text: &'a [u8], clock: &mut CivilTime) -> Result<&'a [u8], ElementError> {
    let (slot, fixed, range, name) = match piece {
        Text(expected) => return text.strip_prefix(expected.as_bytes()).ok_or(ElementError::Bad),
        Year => return read_year(text, clock),
        Micros => return read_micros(text, clock),
        Zone => return read_zone(text, clock),
        Month => (&mut clock.month, true, 1..=12, "month"),
        // The length of the month is only known at the end.
        Day => (&mut clock.day, true, 0..=99, "day"),
        Hour => (&mut clock.hour, false, 0..=23, "hour"),
        Minute => (&mut clock.minute, true, 0..=59, "minute"),
        Second { .. } => (&mut clock.second, true, 0..=59, "second"),
    };
    let (number, rest) = read_number(text, fixed).ok_or(ElementError::Bad)?;
    if !range.contains(&number) {
        return Err(ElementError::Range(name));
    }
    *slot = number;
    match piece {
        Second { free_fraction: true } => Ok(read_fraction(rest, clock)),
        _ => Ok(rest),
    }
}

/// Two digits, or one if the layout is not strict.
fn read_number(text: &[u8], fixed: bool) -> Option<(i64, &[u8])> {
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', rest @ ..] => Some((i64::from(a - b'0') * 10 + i64::from(b - b'0'), rest)),
        [a @ b'0'..=b'9', rest @ ..] if !fixed => Some((i64::from(a - b'0'), rest)),
        _ => None,
    }
}

fn read_year<'a>(text: &'a [u8], clock: &mut CivilTime) -> Result<&'a [u8], ElementError> {
    let (year, rest) = text.split_at_checked(4).ok_or(ElementError::Bad)?;
    if !year.iter().all(u8::is_ascii_digit) {
        return Err(ElementError::Bad);
    }
    clock.year = year.iter().fold(0, |year, digit| year * 10 + i64::from(digit - b'0'));
    Ok(rest)
}

/// Digits beyond nanoseconds are truncated.
fn read_fraction<'a>(text: &'a [u8], clock: &mut CivilTime) -> &'a [u8] {
    let [b'.' | b',', digits @ ..] = text else { return text };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return text;
    }
    let nine = digits[..count].iter().copied().chain(std::iter::repeat(b'0')).take(9);
    clock.nanos = nine.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    &digits[count..]
}

fn read_micros<'a>(text: &'a [u8], clock: &mut CivilTime) -> Result<&'a [u8], ElementError> {
    let (fraction, rest) = text.split_at_checked(7).ok_or(ElementError::Bad)?;
    match read_fraction(fraction, clock) {
        [] => Ok(rest),
        _ => Err(ElementError::Bad),
    }
}

fn read_zone<'a>(text: &'a [u8], clock: &mut CivilTime) -> Result<&'a [u8], ElementError> {
    if let [b'Z', rest @ ..] = text {
        return Ok(rest);
    }
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, rest @ ..] = text else { return Err(ElementError::Bad) };
    let (hours, _) = read_number(&[*h1, *h2], true).ok_or(ElementError::Bad)?;
    let (minutes, _) = read_number(&[*m1, *m2], true).ok_or(ElementError::Bad)?;
    if hours > 24 {
        return Err(ElementError::Range("time zone offset hour"));
    }
    if minutes > 60 {
        return Err(ElementError::Range("time zone offset minute"));
    }
    let offset = hours * 3600 + minutes * 60;
    clock.offset_seconds = if *sign == b'-' { -offset } else { offset };
    Ok(rest)
}

/// Quotes like Go's time package: bytes outside printable ASCII in hexadecimal.
fn go_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            0x20..=0x7f => out.push(byte as char),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses Go's notation (`1h2m3.5s`) to nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(go_quote(text));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let (mut rest, mut total) = (unsigned, 0i128);
    while !rest.is_empty() {
        let end = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let end = tail.bytes().position(|b| b.is_ascii_digit() || b == b'.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let number = decimal_nanos(number).ok_or_else(invalid)?;
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(go_quote(text)));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let unknown = || DurationError::UnknownUnit { unit: go_quote(unit), text: go_quote(text) };
        let (_, nanos) = known.ok_or_else(unknown)?;
        total += number * nanos / 1_000_000_000;
        if total > 1 << 63 {
            return Err(invalid());
        }
        rest = tail;
    }
    let total = if text.starts_with('-') { -total } else { total };
    i64::try_from(total).map_err(|_| invalid())
}

/// A decimal number in billionths; None without digits, with two points, or if too large.
fn decimal_nanos(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 19 || fraction.contains('.') {
        return None;
    }
    let digits = whole.bytes().chain(fraction.bytes().chain(std::iter::repeat(b'0')).take(9));
    Some(digits.fold(0, |value, digit| value * 10 + i128::from(digit - b'0')))
}

/// Nanoseconds in Go's notation: `1h2m3.5s`, `0s`, `1.5ms`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let number = |divisor: u64| fraction(total, divisor);
    match total {
        0 => "0s".to_string(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", number(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", number(1_000_000)),
        _ => {
            let (minutes, rest) = (total / 60_000_000_000, total % 60_000_000_000);
            let seconds = fraction(rest, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn fraction(value: u64, divisor: u64) -> String {
    let digits = divisor.ilog10() as usize;
    let text = format!("{}.{:0digits$}", value / divisor, value % divisor);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// An age with two or three significant figures, as in tables: `4d3h`.
pub fn human_duration(seconds: i64) -> String {
    const YEAR: i64 = 365;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < -1 => "<invalid>".to_string(),
        () if seconds < 0 => "0s".to_string(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two_units(days, "d", hours % 24, "h"),
        () if days < 2 * YEAR => format!("{days}d"),
        () if days < 8 * YEAR => two_units(days / YEAR, "y", days % YEAR, "d"),
        () => format!("{}y", days / YEAR),
    }
}

fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_formatted_in_utc() {
        assert_eq!(format_seconds(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_seconds(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(format_seconds(-62_135_596_800), "0001-01-01T00:00:00Z");
    }

    #[test]
    fn times_become_canonical() {
        let cases = [
            ("2024-02-29T12:34:56Z", "2024-02-29T12:34:56Z"),
            ("2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56Z"),
            ("2024-02-29T12:34:56+02:00", "2024-02-29T10:34:56Z"),
            ("2024-01-01T00:30:00-01:30", "2024-01-01T02:00:00Z"),
            ("2024-02-29T2:34:56,5Z", "2024-02-29T02:34:56Z"),
            ("2024-02-29T2:34:56Z", "2024-02-29T02:34:56Z"),
        ];
        for (text, want) in cases {
            assert_eq!(canonical(text).as_deref(), Ok(want));
        }
        assert_eq!(canonical_micro("2024-01-02T03:04:05.678901+01:00").as_deref(), Ok("2024-01-02T02:04:05.678901Z"));
    }

    #[test]
    fn days_round_trip() {
        for day in -800_000..800_000 {
            let (year, month, of_month) = civil(day);
            assert_eq!(days_of(year, month, of_month), day);
        }
    }

    #[test]
    fn time_errors_match_go() {
        let time = [
            ("yesterday", r#"as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#),
            ("", r#"as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2024-02-30T12:34:56Z", ": day out of range"),
            ("2024-13-01T12:34:56Z", ": month out of range"),
            ("2024-01-01T24:34:56Z", ": hour out of range"),
            ("2024-01-01", r#"as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ("2024-01-01T00:00:00", r#"as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#),
            ("2024-01-01T00:00:00Zé", r#": extra text: "\xc3\xa9""#),
        ];
        for (text, want) in time {
            let message = canonical(text).expect_err(text).to_string();
            assert!(message.ends_with(want), "{message}");
        }
        let micro = [
            ("2024-01-02T03:04:05Z", r#"cannot parse "Z" as ".000000""#),
            ("2024-01-02T03:04:05.678Z", r#"cannot parse ".678Z" as ".000000""#),
            ("bad", r#"cannot parse "bad" as "2006""#),
        ];
        for (text, want) in micro {
            let message = canonical_micro(text).expect_err(text).to_string();
            assert_eq!(message, format!("parsing time \"{text}\" as \"2006-01-02T15:04:05.000000Z07:00\": {want}"));
        }
    }

    #[test]
    fn durations_follow_go() {
        let cases = [
            ("0", Ok(0), "0s"),
            ("1h2m3s", Ok(3_723_000_000_000), "1h2m3s"),
            ("1.5h", Ok(5_400_000_000_000), "1h30m0s"),
            ("90s", Ok(90_000_000_000), "1m30s"),
            ("1500us", Ok(1_500_000), "1.5ms"),
            ("-2ns", Ok(-2), "-2ns"),
            ("1", Err(r#"time: missing unit in duration "1""#), ""),
            ("1x", Err(r#"time: unknown unit "x" in duration "1x""#), ""),
            ("", Err(r#"time: invalid duration """#), ""),
            ("1.2.3s", Err(r#"time: invalid duration "1.2.3s""#), ""),
            ("9999999999h", Err(r#"time: invalid duration "9999999999h""#), ""),
        ];
        for (text, want, back) in cases {
            let read = parse_duration(text).map_err(|error| error.to_string());
            assert_eq!(read.as_ref().map(|nanos| *nanos).map_err(String::as_str), want);
            if let Ok(nanos) = read {
                assert_eq!(format_duration(nanos), back);
            }
        }
    }

    #[test]
    fn ages_are_abbreviated() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (3600, "60m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (47 * 3600, "47h"),
            (50 * 3600, "2d2h"),
            (400 * 86_400, "400d"),
            (731 * 86_400, "2y1d"),
            (9 * 365 * 86_400, "9y"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human_duration(seconds), want);
        }
    }
}
