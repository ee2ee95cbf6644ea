//! Cron schedules: five fields, a descriptor such as `@daily`, or `@every 1h30m`. Errors have the messages of the
//! library that upstream uses.

use thiserror::Error;

use crate::time_zones;

/// Why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// The text is empty.
    #[error("empty spec string")]
    Empty,
    /// A schedule has five fields.
    #[error("expected exactly 5 fields, found {count}: [{fields}]")]
    FieldCount {
        /// The number of fields.
        count: usize,
        /// The fields, separated by spaces.
        fields: String,
    },
    /// The time zone is not in the database.
    #[error("provided bad location {0}: unknown time zone {0}")]
    UnknownZone(String),
    /// A word with `@` that has no meaning.
    #[error("unrecognized descriptor: {0}")]
    UnknownDescriptor(String),
    /// The interval of `@every` is not a duration.
    #[error("failed to parse duration {descriptor}: {reason}")]
    Interval {
        /// The whole descriptor.
        descriptor: String,
        /// The error in the duration.
        reason: String,
    },
    /// A range has more than two ends.
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    /// A range has more than one step.
    #[error("too many slashes: {0}")]
    Slashes(String),
    /// A range is not within the values of its field.
    #[error("{problem}: {range}")]
    Range {
        /// The error, with the numbers.
        problem: RangeProblem,
        /// The text of the range.
        range: String,
    },
    /// A word is not a number.
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: {reason}", api::field::go_quote(.text))]
    Number {
        /// The word.
        text: String,
        /// Go's reason.
        reason: &'static str,
    },
    /// A number is negative.
    #[error("negative number ({number}) not allowed: {text}")]
    Negative {
        /// The number.
        number: i64,
        /// Its text.
        text: String,
    },
}

/// The errors of a range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RangeProblem {
    /// The range begins below the minimum of the field.
    #[error("beginning of range ({0}) below minimum ({1})")]
    BelowMinimum(u32, u32),
    /// The range ends above the maximum of the field.
    #[error("end of range ({0}) above maximum ({1})")]
    AboveMaximum(u32, u32),
    /// The range ends before it begins.
    #[error("beginning of range ({0}) beyond end of range ({1})")]
    Reversed(u32, u32),
    /// The range has the step 0.
    #[error("step of range should be a positive number")]
    ZeroStep,
}

/// When to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    Fields(Fields),
    /// At an interval.
    Every {
        seconds: i64,
    },
}

/// A bit set for each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    pub minutes: u64,
    pub hours: u64,
    pub days_of_month: u64,
    pub months: u64,
    pub days_of_week: u64,
    /// With `*` in one of the day fields the other one decides; otherwise either may match.
    pub any_day_of_month: bool,
    pub any_day_of_week: bool,
}

struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS_OF_MONTH: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAYS_OF_WEEK: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// A time zone prefix (`TZ=` or `CRON_TZ=`) is checked and skipped: the caller handles the zone.
pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
    if text.is_empty() {
        return Err(ScheduleError::Empty);
    }
    let text = skip_zone(text)?;
    if text.starts_with('@') {
        return parse_descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days_of_month, months, days_of_week] = fields[..] else {
        return Err(ScheduleError::FieldCount { count: fields.len(), fields: fields.join(" ") });
    };
    let (minutes, _) = parse_field(minutes, &MINUTES)?;
    let (hours, _) = parse_field(hours, &HOURS)?;
    let (days_of_month, any_day_of_month) = parse_field(days_of_month, &DAYS_OF_MONTH)?;
    let (months, _) = parse_field(months, &MONTHS)?;
    let (days_of_week, any_day_of_week) = parse_field(days_of_week, &DAYS_OF_WEEK)?;
    let fields = Fields { minutes, hours, days_of_month, months, days_of_week, any_day_of_month, any_day_of_week };
    Ok(Schedule::Fields(fields))
}

/// The time zone in the schedule itself.
pub fn zone_of(text: &str) -> Option<&str> {
    split_zone(text).map(|(zone, _)| zone)
}

fn split_zone(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="))?;
    Some(rest.split_once(' ').unwrap_or((rest, "")))
}

fn skip_zone(text: &str) -> Result<&str, ScheduleError> {
    let Some((zone, rest)) = split_zone(text) else { return Ok(text) };
    if zone.is_empty() || zone == "Local" || time_zones::is_zone(zone) {
        return Ok(rest.trim());
    }
    Err(ScheduleError::UnknownZone(zone.to_string()))
}

fn parse_descriptor(text: &str) -> Result<Schedule, ScheduleError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return parse_every(text),
    };
    parse(fields)
}

/// Intervals are whole seconds, at least one.
fn parse_every(text: &str) -> Result<Schedule, ScheduleError> {
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(ScheduleError::UnknownDescriptor(text.to_string()));
    };
    match api::time::parse_duration(duration) {
        Ok(nanos) => Ok(Schedule::Every { seconds: (nanos / 1_000_000_000).max(1) }),
        Err(error) => Err(ScheduleError::Interval { descriptor: text.to_string(), reason: error.to_string() }),
    }
}

/// The bit set of a field, and whether it contains `*`.
fn parse_field(text: &str, bounds: &Bounds) -> Result<(u64, bool), ScheduleError> {
    let mut bits = 0;
    let mut any = false;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (part_bits, part_any) = parse_range(part, bounds)?;
        bits |= part_bits;
        any |= part_any;
    }
    Ok((bits, any))
}

/// `5`, `1-5`, `*/15`, `10-20/2`, `mon-fri`
fn parse_range(text: &str, bounds: &Bounds) -> Result<(u64, bool), ScheduleError> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let star = matches!(ends[0], "*" | "?");
    let (start, mut end) = match ends[..] {
        _ if star => (bounds.min, bounds.max),
        [only] => {
            let number = parse_number_or_name(only, bounds)?;
            (number, number)
        }
        [first, last] => (parse_number_or_name(first, bounds)?, parse_number_or_name(last, bounds)?),
        _ => {
            parse_number_or_name(ends[0], bounds)?;
            return Err(ScheduleError::Hyphens(text.to_string()));
        }
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            let step = parse_number(step)?;
            if ends.len() == 1 {
                end = bounds.max;
            }
            step
        }
        _ => return Err(ScheduleError::Slashes(text.to_string())),
    };
    check_range(start, end, step, bounds)
        .map_err(|problem| ScheduleError::Range { problem, range: text.to_string() })?;
    let bits = (start..=end).step_by(step as usize).fold(0, |bits, number| bits | 1 << number);
    Ok((bits, star && step == 1))
}

fn check_range(start: u32, end: u32, step: u32, bounds: &Bounds) -> Result<(), RangeProblem> {
    if start < bounds.min {
        return Err(RangeProblem::BelowMinimum(start, bounds.min));
    }
    if end > bounds.max {
        return Err(RangeProblem::AboveMaximum(end, bounds.max));
    }
    if start > end {
        return Err(RangeProblem::Reversed(start, end));
    }
    if step == 0 {
        return Err(RangeProblem::ZeroStep);
    }
    Ok(())
}

fn parse_number_or_name(text: &str, bounds: &Bounds) -> Result<u32, ScheduleError> {
    match bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        Some(index) => Ok(bounds.min + index as u32),
        None => parse_number(text),
    }
}

/// Parses integers with Go's error messages.
fn parse_number(text: &str) -> Result<u32, ScheduleError> {
    let number: i64 = text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let is_overflow = matches!(error.kind(), NegOverflow | PosOverflow);
        let reason = if is_overflow { "value out of range" } else { "invalid syntax" };
        ScheduleError::Number { text: text.to_string(), reason }
    })?;
    if number < 0 {
        return Err(ScheduleError::Negative { number, text: text.to_string() });
    }
    // Larger numbers are out of bounds of every field as well.
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Result<(u64, u64, u64, u64, u64), &str>) {
        let found = parse(text).map(|schedule| match schedule {
            Schedule::Fields(f) => (f.minutes, f.hours, f.days_of_month, f.months, f.days_of_week),
            Schedule::Every { seconds } => (seconds as u64, 0, 0, 0, 0),
        });
        assert_eq!(found.map_err(|error| error.to_string()), want.map_err(str::to_string), "{text}");
    }

    const ALL_HOURS: u64 = (1 << 24) - 1;
    const ALL_DAYS: u64 = ((1 << 32) - 1) & !1;
    const ALL_MONTHS: u64 = ((1 << 13) - 1) & !1;

    #[test]
    fn parses_valid_schedules() {
        let quarters = 1 | 1 << 15 | 1 << 30 | 1 << 45;
        check("*/15 * * * *", Ok((quarters, ALL_HOURS, ALL_DAYS, ALL_MONTHS, 127)));
        check("0 0 1 JAN mon-fri", Ok((1, 1, 2, 2, 0b11_1110)));
        check("5 1,2-4 * * ?", Ok((1 << 5, 0b1_1110, ALL_DAYS, ALL_MONTHS, 127)));
        check("@daily", Ok((1, 1, ALL_DAYS, ALL_MONTHS, 127)));
        check("@every 1h30m", Ok((5400, 0, 0, 0, 0)));
        check("TZ=UTC 0 0 * * *", Ok((1, 1, ALL_DAYS, ALL_MONTHS, 127)));
    }

    #[test]
    fn refuses_invalid_schedules() {
        let cases = [
            ("", "empty spec string"),
            ("bad", "expected exactly 5 fields, found 1: [bad]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
            ("TZ=Mars/X * * * * *", "provided bad location Mars/X: unknown time zone Mars/X"),
        ];
        for (text, error) in cases {
            check(text, Err(error));
        }
    }
}
