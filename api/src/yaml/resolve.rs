//! The meaning of a plain scalar, also used by the encoder to decide about quoting.

use crate::tree::{Str, Tree};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// `<<`: merges the entries of another map.
    Merge,
    /// A string that looks like a timestamp, and is quoted on output.
    Timestamp,
    Text,
}

pub(super) fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Plain::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Plain::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Plain::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Plain::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Plain::Float(f64::NEG_INFINITY),
        "<<" => Plain::Merge,
        _ => number(text).unwrap_or(Plain::Text),
    }
}

fn number(text: &str) -> Option<Plain> {
    if !text.starts_with(['+', '-', '.']) && !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_timestamp(text) {
        return Some(Plain::Timestamp);
    }
    let digits = text.replace('_', "");
    if let Some(value) = integer(&digits) {
        return Some(i64::try_from(value).map_or(Plain::Float(value as f64), Plain::Int));
    }
    is_float(&digits).then(|| digits.parse().ok().map(Plain::Float)).flatten()
}

/// Decimal, `0x`, `0b`, and octal as `0o17` or `017`; up to unsigned 64 bits.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// `-1.5e+3`, `.5`, `1.`
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!whole.is_empty() || !fraction.is_empty())
        && digits(whole)
        && digits(fraction)
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

/// `2001-12-14`, `2001-12-14T21:59:43.10-05:00`, `2001-12-14 21:59:43`
pub(crate) fn is_timestamp(text: &str) -> bool {
    let Some((date, time)) = split_date(text) else { return false };
    if time.is_empty() {
        return date;
    }
    let Some(clock) = time.strip_prefix(['T', 't', ' ']) else { return false };
    let spaced = time.starts_with(' ');
    let end = clock.find(['Z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(end);
    date && is_clock(clock) && if spaced { zone.is_empty() } else { is_zone(zone) }
}

/// The rest after a date, and whether the date is valid.
fn split_date(text: &str) -> Option<(bool, &str)> {
    let end = text.find(['T', 't', ' ']).unwrap_or(text.len());
    let (date, rest) = text.split_at(end);
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let sound = year.len() == 4 && all_digits(year) && in_range(month, 12) && in_range(day, 31);
    let sound = sound && !matches!((month, day), ("0" | "00", _) | (_, "0" | "00"));
    parts.next().is_none().then_some((sound, rest))
}

fn is_clock(text: &str) -> bool {
    let text = match text.split_once('.') {
        Some((clock, fraction)) if !fraction.is_empty() && all_digits(fraction) => clock,
        Some(_) => return false,
        None => text,
    };
    let parts: Vec<&str> = text.split(':').collect();
    matches!(parts[..], [hour, minute, second] if in_range(hour, 23) && in_range(minute, 59) && in_range(second, 59))
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn in_range(text: &str, max: u8) -> bool {
    matches!(text.len(), 1..=2) && all_digits(text) && text.parse::<u8>().is_ok_and(|number| number <= max)
}

/// `1:20`, a base-60 number in YAML 1.1, which upstream does not read as such.
pub(crate) fn is_base60(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (text, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digit_or_bar = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or("");
    let rest: Vec<&str> = parts.collect();
    first.starts_with(|c: char| c.is_ascii_digit())
        && digit_or_bar(first)
        && digit_or_bar(fraction)
        && !rest.is_empty()
        && rest.iter().all(|part| in_range(part, 59))
}

pub(crate) fn as_tree(plain: Plain, text: &str) -> Tree {
    match plain {
        Plain::Null => Tree::Null,
        Plain::Bool(value) => Tree::Bool(value),
        Plain::Int(value) => Tree::Int(value),
        Plain::Float(value) => Tree::Float(value),
        Plain::Merge | Plain::Timestamp | Plain::Text => Tree::Str(Str::new(text)),
    }
}
