//! Values of flags, with the errors of Go's parsers.

use api::field::go_quote;
use api::time::DurationError;

use super::{Flag, Kind};

/// Text that is no value of a flag, in the words of Go's parsers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("{0} must be formatted as key=value")]
    Pair(String),
    #[error("strconv.{function}: parsing {}: value out of range", go_quote(text))]
    OutOfRange { function: &'static str, text: String },
    #[error("strconv.{function}: parsing {}: invalid syntax", go_quote(text))]
    Syntax { function: &'static str, text: String },
    #[error(transparent)]
    Duration(#[from] DurationError),
}

/// Go's booleans.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Decimal, or with a prefix like Go's literals.
pub(super) fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if negative { -value } else { value }).ok()
}

/// Values separated by commas; quotes allow commas in them.
pub(super) fn split_csv(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let (mut all, mut current, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                current.push('"');
            }
            '"' if quoted || current.is_empty() => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut current)),
            char => current.push(char),
        }
    }
    all.push(current);
    all
}

/// `key=value` pairs. A text with one `=` is one pair, whose value may have commas.
pub(super) fn split_pairs(text: &str) -> Vec<(String, String)> {
    let items = if text.matches('=').count() == 1 { vec![text.to_string()] } else { split_csv(text) };
    items
        .iter()
        .filter_map(|item| item.split_once('='))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn check_pairs(text: &str) -> Result<(), ValueError> {
    match text.matches('=').count() {
        1 => Ok(()),
        0 => Err(ValueError::Pair(text.to_string())),
        _ => match split_csv(text).iter().find(|item| !item.contains('=')) {
            Some(item) => Err(ValueError::Pair(item.clone())),
            None => Ok(()),
        },
    }
}

/// The problem of a value.
pub(super) fn check(flag: &Flag, text: &str) -> Result<(), ValueError> {
    match flag.kind {
        Kind::Bool if parse_bool(text).is_none() => {
            Err(ValueError::Syntax { function: "ParseBool", text: text.to_string() })
        }
        Kind::Int | Kind::Int64 => check_int(text, i64::MIN, i64::MAX),
        Kind::Pairs => check_pairs(text),
        Kind::Int32 => check_int(text, i32::MIN.into(), i32::MAX.into()),
        Kind::Duration => Ok(api::time::parse_duration(text).map(drop)?),
        _ => Ok(()),
    }
}

fn check_int(text: &str, low: i64, high: i64) -> Result<(), ValueError> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_long = digits.len() > 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
    match parse_int(text) {
        Some(value) if (low..=high).contains(&value) => Ok(()),
        None if !is_long => Err(ValueError::Syntax { function: "ParseInt", text: text.to_string() }),
        _ => Err(ValueError::OutOfRange { function: "ParseInt", text: text.to_string() }),
    }
}
