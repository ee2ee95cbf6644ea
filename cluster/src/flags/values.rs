//! Values of flags in upstream's forms.

use std::ops::RangeInclusive;
use std::time::Duration;

use api::quantity::Quantity;
use stdx::cidr::{InvalidCidr, IpNet};
use store::embedded::Retention;
use thiserror::Error;

use crate::logs::{Format, Level};

/// Go's longest duration, about 292 years.
const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// A value that is not of the form that its flag needs.
#[derive(Debug, PartialEq, Error)]
pub(crate) enum ValueError {
    #[error("invalid duration {0:?}")]
    Duration(String),
    #[error("invalid boolean {0:?}")]
    Boolean(String),
    #[error(transparent)]
    Cidr(#[from] InvalidCidr),
    #[error("{0:?} is neither a duration such as 24h, nor a size such as 64Mi, nor both with a comma")]
    Retention(String),
    #[error("{0:?} must be one CIDR, or one per IP family")]
    Families(String),
    #[error("{0:?} is not a valid port range, such as 30000-32767")]
    PortRange(String),
    #[error("unknown {what} {value:?}; supported: {supported}")]
    Unknown { what: &'static str, value: String, supported: &'static str },
}

/// The error for a value that is none of the supported ones.
pub(crate) fn unknown(what: &'static str, value: &str, supported: &'static str) -> ValueError {
    ValueError::Unknown { what, value: value.to_string(), supported }
}

/// A value that does not parse.
#[derive(Debug, Error)]
#[error("invalid value {text:?}: {source}")]
pub(crate) struct ParseError<E: std::error::Error + 'static> {
    text: String,
    source: E,
}

/// Go's durations: `1h0m0s`, `90m`, `1.5h`, `300ms`; of all numbers 0 alone needs no unit.
pub(crate) fn duration(text: &str) -> Result<Duration, ValueError> {
    let invalid = || ValueError::Duration(text.to_string());
    let mut rest = text;
    let mut total = Duration::ZERO;
    match rest {
        "" => return Err(invalid()),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len() - digits);
        let seconds = unit(&rest[digits..digits + letters]).ok_or_else(invalid)?;
        let more = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(more).filter(|total| *total <= LONGEST).ok_or_else(invalid)?;
        rest = &rest[digits + letters..];
    }
    Ok(total)
}

/// How much history is kept: an age, a size such as `64Mi`, or both; what is not given stays. 0 is none.
pub(crate) fn retention(text: &str, default: Retention) -> Result<Retention, ValueError> {
    let mut kept = default;
    for part in text.split(',') {
        match (duration(part), Quantity::parse(part)) {
            (_, Ok(size)) if size.is_zero() => return Ok(Retention::OFF),
            (Ok(age), _) => kept.age = age,
            (Err(_), Ok(size)) => {
                let bytes = size.as_int().and_then(|bytes| u64::try_from(bytes).ok());
                kept.bytes = bytes.ok_or_else(|| ValueError::Retention(text.to_string()))?;
            }
            _ => return Err(ValueError::Retention(text.to_string())),
        }
    }
    Ok(kept)
}

/// A list of names, separated by commas.
pub(crate) fn names(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_string)
}

fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "h" => 3600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
}

/// The level of the verbosity in `-v`.
pub(crate) fn log_level(text: &str) -> Result<Level, ParseError<std::num::ParseIntError>> {
    Ok(Level::of_verbosity(parsed(text)?))
}

/// The value of `--logging-format`.
pub(crate) fn log_format(text: &str) -> Result<Format, ValueError> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err(unknown("format", text, "text, json")),
    }
}

/// One range, or two of different families, without host bits.
pub(crate) fn cidrs(text: &str) -> Result<Vec<IpNet>, ValueError> {
    let cidr = |part: &str| part.trim().parse().map(|cidr: IpNet| cidr.network());
    let ranges: Vec<IpNet> = text.split(',').map(cidr).collect::<Result<_, _>>()?;
    match ranges.as_slice() {
        [_] => Ok(ranges),
        [first, second] if first.is_ipv4() != second.is_ipv4() => Ok(ranges),
        _ => Err(ValueError::Families(text.to_string())),
    }
}

/// `30000-32767`, or `30000+100`.
pub(crate) fn port_range(text: &str) -> Result<RangeInclusive<u16>, ValueError> {
    let invalid = || ValueError::PortRange(text.to_string());
    let parse = |part: &str| part.trim().parse::<u16>().map_err(|_| invalid());
    let range = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => parse(first)?..=parse(last)?,
        (_, Some((first, more))) => parse(first)?..=parse(first)?.checked_add(parse(more)?).ok_or_else(invalid)?,
        _ => return Err(invalid()),
    };
    if range.is_empty() || *range.start() == 0 { Err(invalid()) } else { Ok(range) }
}

/// Comma-separated texts.
pub(crate) fn list(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
}

/// The forms of Go's `strconv.ParseBool`.
pub(crate) fn boolean(text: &str) -> Result<bool, ValueError> {
    match text {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        _ => Err(ValueError::Boolean(text.to_string())),
    }
}

/// A number, an address, or another type that parses itself.
pub(crate) fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, ParseError<T::Err>>
where
    T::Err: std::error::Error,
{
    text.parse().map_err(|source| ParseError { text: text.to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_go_durations() {
        let cases = [("1h0m0s", Some(3_600_000)), ("90m", Some(5_400_000)), ("1.5s", Some(1500)), ("20ms", Some(20))];
        let bad = [("", None), ("5", None), ("h", None), ("1x", None), ("-1h", None)];
        let long =
            [("2562047h", Some(9_223_369_200_000)), ("2562048h", None), ("5000000000000000h5000000000000000h", None)];
        for (text, want) in cases.into_iter().chain(bad).chain(long) {
            assert_eq!(duration(text).ok().map(|got| got.as_millis()), want, "{text}");
        }
    }

    #[test]
    fn parses_retentions() {
        let default = Retention::default();
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        for (text, expected) in [
            ("1h", Some(Retention { age: hours(1), ..default })),
            ("1Gi", Some(Retention { bytes: 1 << 30, ..default })),
            ("48h,128Mi", Some(Retention { bytes: 128 << 20, age: hours(48) })),
            ("0", Some(Retention::OFF)),
            ("0s", None),
            ("always", None),
            ("-1Mi", None),
            ("", None),
        ] {
            assert_eq!(retention(text, default).ok().filter(|kept| text != "0s" || kept.is_on()), expected, "{text:?}");
        }
    }

    #[test]
    fn parses_cidrs_and_port_ranges() {
        let show = |text| cidrs(text).ok().map(|all| all.iter().map(|cidr| format!("{cidr} ")).collect::<String>());
        assert_eq!(show("10.96.3.1/12").as_deref(), Some("10.96.0.0/12 "));
        assert_eq!(show("10.96.0.0/16,fd00::/108").as_deref(), Some("10.96.0.0/16 fd00::/108 "));
        assert_eq!(show("0.0.0.0/0").as_deref(), Some("0.0.0.0/0 "));
        for bad in ["", "10.96.0.0", "10.96.0.0/33", "10.0.0.0/16,10.1.0.0/16", "a/1"] {
            assert_eq!(show(bad), None, "{bad}");
        }
        assert_eq!(port_range("30000-32767"), Ok(30000..=32767));
        assert_eq!(port_range("30000+10"), Ok(30000..=30010));
        for bad in ["", "1", "5-4", "0-10", "1-70000"] {
            assert!(port_range(bad).is_err(), "{bad}");
        }
    }
}
