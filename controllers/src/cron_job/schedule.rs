//! Computes the next time of a schedule.

use std::sync::Arc;

use api::time::weekday;
use kinds::batch::cron::{Fields, Schedule};
use kinds::time_zones::Zone;

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 86_400;
/// A schedule without a time in the next five years never fires.
const MAX_DAYS: usize = 5 * 366;

/// A schedule in a time zone.
#[derive(Debug, Clone)]
pub struct ZonedSchedule {
    pub schedule: Schedule,
    pub zone: Arc<Zone>,
}

impl ZonedSchedule {
    /// A schedule in UTC.
    pub fn utc(schedule: Schedule) -> ZonedSchedule {
        ZonedSchedule { schedule, zone: Arc::new(Zone::utc()) }
    }

    /// The first time after the given second; None if there is none.
    pub fn next(&self, after: i64) -> Option<i64> {
        match &self.schedule {
            Schedule::Every { seconds } => Some(after + seconds),
            Schedule::Fields(fields) => self.next_minute(fields, after),
        }
    }

    /// Iterates over UTC: a local hour that is skipped never fires, a repeated hour fires twice.
    fn next_minute(&self, fields: &Fields, after: i64) -> Option<i64> {
        let local = |utc: i64| utc + self.zone.offset(utc);
        let mut time = after + MINUTE - local(after).rem_euclid(MINUTE);
        for _ in 0..MAX_DAYS {
            let day = local(time).div_euclid(DAY);
            if !matches_day(fields, day) {
                time = self.midnight(day + 1, time);
                continue;
            }
            while local(time).div_euclid(DAY) == day {
                let second = local(time).rem_euclid(DAY);
                if !has(fields.hours, second / HOUR) {
                    time += HOUR - second % HOUR;
                } else if !has(fields.minutes, second % HOUR / MINUTE) {
                    time += MINUTE;
                } else {
                    return Some(time);
                }
            }
        }
        None
    }

    /// The first second after `time` of a local day.
    fn midnight(&self, day: i64, time: i64) -> i64 {
        let guess = day * DAY - self.zone.offset(time);
        let again = day * DAY - self.zone.offset(guess);
        let is_there = |utc: i64| (utc + self.zone.offset(utc)).div_euclid(DAY) >= day;
        if is_there(again) { again.min(if is_there(guess) { guess } else { again }) } else { guess.max(again) }
    }
}

fn has(bits: u64, number: i64) -> bool {
    bits >> number & 1 == 1
}

fn matches_day(fields: &Fields, day: i64) -> bool {
    let (_, month, date) = api::time::civil(day);
    let by_date = has(fields.days_of_month, date);
    let by_weekday = has(fields.days_of_week, weekday(day));
    let either =
        if fields.any_day_of_month || fields.any_day_of_week { by_date && by_weekday } else { by_date || by_weekday };
    has(fields.months, month) && either
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, zone: &str, after: &str, want: &[&str]) {
        let schedule = kinds::batch::cron::parse(schedule).expect("a schedule");
        let zone = if zone.is_empty() { Zone::utc() } else { Zone::parse(&file(zone)).expect("a zone") };
        let zoned = ZonedSchedule { schedule, zone: Arc::new(zone) };
        let mut time = api::time::parse(after).expect("a time").seconds;
        for want in want {
            match zoned.next(time) {
                Some(next) => time = next,
                None => {
                    assert_eq!(*want, "never");
                    return;
                }
            }
            assert_eq!(api::time::format_seconds(time), *want, "{zoned:?}");
        }
    }

    /// A zone file with a rule and no transitions.
    fn file(rule: &str) -> Vec<u8> {
        let block = || {
            let mut bytes = b"TZif2".to_vec();
            bytes.extend([0; 15]);
            for count in [0u32, 0, 0, 0, 1, 4] {
                bytes.extend(count.to_be_bytes());
            }
            bytes.extend([0; 6]);
            bytes.extend(b"ABC\0");
            bytes
        };
        [block(), block(), format!("\n{rule}\n").into_bytes()].concat()
    }

    #[test]
    fn computes_next_times() {
        check("*/15 * * * *", "", "2024-01-01T00:00:00Z", &["2024-01-01T00:15:00Z", "2024-01-01T00:30:00Z"]);
        check("0 * * * *", "", "2024-01-01T00:00:59Z", &["2024-01-01T01:00:00Z"]);
        check("59 23 31 12 *", "", "2024-01-01T00:00:00Z", &["2024-12-31T23:59:00Z", "2025-12-31T23:59:00Z"]);
        check("0 0 29 2 *", "", "2024-03-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        check("0 0 31 2 *", "", "2024-03-01T00:00:00Z", &["never"]);
        check("30 6-16/4 * * 1-5", "", "2024-01-05T14:30:00Z", &["2024-01-08T06:30:00Z", "2024-01-08T10:30:00Z"]);
        check("0 0 13 * 5", "", "2024-09-13T00:00:00Z", &["2024-09-20T00:00:00Z"]);
        check("@every 90s", "", "2024-01-01T00:00:00Z", &["2024-01-01T00:01:30Z", "2024-01-01T00:03:00Z"]);
    }

    #[test]
    fn schedules_use_the_time_zone() {
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        check("0 12 * * *", berlin, "2024-01-01T00:00:00Z", &["2024-01-01T11:00:00Z"]);
        check("0 12 * * *", berlin, "2024-07-01T00:00:00Z", &["2024-07-01T10:00:00Z"]);
        check("0 0 * * *", berlin, "2024-07-01T00:00:00Z", &["2024-07-01T22:00:00Z", "2024-07-02T22:00:00Z"]);
        // The hour is skipped on one day.
        check("30 2 * * *", berlin, "2024-03-30T02:00:00Z", &["2024-04-01T00:30:00Z"]);
        // The hour is repeated on another day.
        let twice = ["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z", "2024-10-28T01:30:00Z"];
        check("30 2 * * *", berlin, "2024-10-26T12:00:00Z", &twice);
        check("15 * * * *", "<+0545>-5:45", "2024-01-01T00:00:00Z", &["2024-01-01T00:30:00Z"]);
    }

    #[test]
    fn a_day_may_start_after_midnight() {
        // The clocks change from midnight to one o'clock.
        let late = "AAA3BBB,M9.1.0/0,M4.1.0/0";
        check("0 0 * * *", late, "2024-08-31T12:00:00Z", &["2024-09-02T02:00:00Z"]);
        check("0 1 * * *", late, "2024-08-31T12:00:00Z", &["2024-09-01T03:00:00Z"]);
    }
}
