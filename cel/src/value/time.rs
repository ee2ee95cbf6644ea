//! Timestamps with their offset, and their text.

use std::cmp::Ordering;
use std::fmt;

use api::time::{civil, days_of};

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS: i128 = 1_000_000_000;

/// A point in time. Its offset from UTC only shows in its text.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

/// The parts of a local time.
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    /// From Sunday, 0.
    pub(crate) weekday: i64,
    pub(crate) second_of_day: i64,
}

impl Timestamp {
    /// None if it is out of CEL's range.
    pub fn new(seconds: i64, nanos: u32) -> Option<Timestamp> {
        (MIN_SECONDS..=MAX_SECONDS).contains(&seconds).then_some(Timestamp { seconds, nanos, offset: 0 })
    }

    /// Reads RFC 3339.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let time = api::time::parse(text).ok()?;
        let timestamp = Timestamp::new(time.seconds, time.nanos)?;
        Some(Timestamp { offset: read_offset(text), ..timestamp })
    }

    pub(crate) fn nanoseconds(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    /// The time that is `nanos` later; none if it is out of range.
    pub(crate) fn add(self, nanos: i128) -> Option<Timestamp> {
        let total = self.nanoseconds() + nanos;
        let seconds = i64::try_from(total.div_euclid(NANOS)).ok()?;
        let timestamp = Timestamp::new(seconds, u32::try_from(total.rem_euclid(NANOS)).ok()?)?;
        Some(Timestamp { offset: self.offset, ..timestamp })
    }

    pub(crate) fn civil(self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(86_400);
        let (year, month, day) = civil(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_of(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            second_of_day: local.rem_euclid(86_400),
        }
    }
}

fn read_offset(text: &str) -> i32 {
    let Some(tail) = text.len().checked_sub(6).and_then(|at| text.get(at..)) else { return 0 };
    let sign = match tail.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return 0,
    };
    let (hours, minutes) = (tail[1..3].parse::<i32>().unwrap_or(0), tail[4..6].parse::<i32>().unwrap_or(0));
    sign * (hours * 3600 + minutes * 60)
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Timestamp) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Timestamp) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// RFC 3339 with as many digits of a second as needed.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.civil(i64::from(self.offset));
        let (hour, minute, second) =
            (local.second_of_day / 3600, local.second_of_day / 60 % 60, local.second_of_day % 60);
        write!(f, "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}", local.year, local.month, local.day)?;
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let minutes = self.offset.abs() / 60;
        let sign = if self.offset < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}
