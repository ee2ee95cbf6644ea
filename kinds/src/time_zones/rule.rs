//! The rule for times after the last transition of a time zone file: a POSIX TZ string such as
//! `CET-1CEST,M3.5.0,M10.5.0/3`.

use api::time;

const HOUR: i64 = 3600;
const DAY: i64 = 86_400;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    standard: i64,
    summer: Option<Summer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Summer {
    offset: i64,
    from: Change,
    to: Change,
}

/// A day of each year, and the local second of the transition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    day: Day,
    second: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Day {
    /// The nth weekday of a month; week 5 is the last one.
    Weekday { month: i64, week: i64, weekday: i64 },
    /// Counts from 1; February 29 is never counted.
    Fixed(i64),
    /// Counts from 0.
    OfYear(i64),
}

impl Rule {
    pub(super) fn parse(text: &str) -> Option<Rule> {
        let mut reader = Reader(text);
        reader.name()?;
        let standard = -reader.time()?;
        if reader.0.is_empty() {
            return Some(Rule { standard, summer: None });
        }
        reader.name()?;
        let offset = if reader.0.starts_with(',') { standard + HOUR } else { -reader.time()? };
        let summer = Summer { offset, from: reader.change()?, to: reader.change()? };
        reader.0.is_empty().then_some(Rule { standard, summer: Some(summer) })
    }

    pub(super) fn offset(&self, utc: i64) -> i64 {
        let Some(summer) = &self.summer else { return self.standard };
        let (year, _, _) = time::civil((utc + self.standard).div_euclid(DAY));
        // Each transition is given in the local time that applied before it.
        let from = summer.from.at(year) - self.standard;
        let to = summer.to.at(year) - summer.offset;
        let is_summer = if from < to { (from..to).contains(&utc) } else { !(to..from).contains(&utc) };
        if is_summer { summer.offset } else { self.standard }
    }
}

impl Change {
    fn at(&self, year: i64) -> i64 {
        self.day.of(year) * DAY + self.second
    }
}

impl Day {
    /// Days since 1970.
    fn of(&self, year: i64) -> i64 {
        let first = time::days_of(year, 1, 1);
        match *self {
            Day::OfYear(day) => first + day,
            Day::Fixed(day) => first + day - 1 + i64::from(day >= 60 && time::days_in(year, 2) == 29),
            Day::Weekday { month, week, weekday } => {
                let first = time::days_of(year, month, 1);
                let day = first + (weekday - time::weekday(first)).rem_euclid(7) + (week - 1) * 7;
                let in_month = day < first + time::days_in(year, month);
                if in_month { day } else { day - 7 }
            }
        }
    }
}

struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn skip(&mut self, prefix: char) -> Option<()> {
        self.0 = self.0.strip_prefix(prefix)?;
        Some(())
    }

    fn name(&mut self) -> Option<()> {
        if self.skip('<').is_some() {
            let end = self.0.find('>')?;
            self.take(end + 1);
            return Some(());
        }
        let end = self.0.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.0.len());
        self.0 = (end >= 3).then(|| &self.0[end..])?;
        Some(())
    }

    fn number(&mut self) -> Option<i64> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        self.take(end).parse().ok()
    }

    /// `[+-]h[:m[:s]]` in seconds.
    fn time(&mut self) -> Option<i64> {
        let sign = if self.skip('-').is_some() { -1 } else { 1 };
        if sign == 1 {
            let _ = self.skip('+');
        }
        let mut seconds = self.number()? * HOUR;
        for unit in [60, 1] {
            if self.skip(':').is_none() {
                break;
            }
            seconds += self.number()? * unit;
        }
        Some(sign * seconds)
    }

    fn change(&mut self) -> Option<Change> {
        self.skip(',')?;
        let day = if self.skip('M').is_some() {
            let month = self.number()?;
            self.skip('.')?;
            let week = self.number()?;
            self.skip('.')?;
            let weekday = self.number()?;
            let fits = (1..=12).contains(&month) && (1..=5).contains(&week) && weekday < 7;
            fits.then_some(Day::Weekday { month, week, weekday })?
        } else if self.skip('J').is_some() {
            Day::Fixed(self.number()?)
        } else {
            Day::OfYear(self.number()?)
        };
        let second = if self.skip('/').is_some() { self.time()? } else { 2 * HOUR };
        Some(Change { day, second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &str, time: &str, want_hours: f64) {
        let rule = Rule::parse(rule).expect("a rule");
        let time = api::time::parse(time).expect("a time").seconds;
        assert_eq!(rule.offset(time) as f64 / 3600.0, want_hours, "{time}");
    }

    #[test]
    fn applies_daylight_saving_rules() {
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        check(berlin, "2040-03-25T00:59:59Z", 1.0);
        check(berlin, "2040-03-25T01:00:00Z", 2.0);
        check(berlin, "2040-10-28T00:59:59Z", 2.0);
        check(berlin, "2040-10-28T01:00:00Z", 1.0);
        let york = "EST5EDT,M3.2.0,M11.1.0";
        check(york, "2040-03-11T06:59:59Z", -5.0);
        check(york, "2040-03-11T07:00:00Z", -4.0);
        let sydney = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        check(sydney, "2040-01-01T00:00:00Z", 11.0);
        check(sydney, "2040-07-01T00:00:00Z", 10.0);
        check("<+0545>-5:45", "2040-07-01T00:00:00Z", 5.75);
        check("UTC0", "2040-07-01T00:00:00Z", 0.0);
    }

    #[test]
    fn parses_day_of_year_rules() {
        check("AAA0BBB,J60/0,J300/0", "2040-03-01T00:00:00Z", 1.0);
        check("AAA0BBB,J60/0,J300/0", "2040-02-29T23:00:00Z", 0.0);
        check("AAA0BBB,59/0,300/0", "2040-02-29T00:00:00Z", 1.0);
    }

    #[test]
    fn refuses_invalid_rules() {
        for text in ["", "AB0", "ABC", "ABC0DEF", "ABC0DEF,M13.1.0,M1.1.0", "ABC0DEF,M3.2.0", "UTC0 "] {
            assert_eq!(Rule::parse(text), None, "{text:?}");
        }
    }
}
