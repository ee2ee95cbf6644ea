//! Constants: integers with Go's prefixes, floats, characters and imaginary numbers.

use api::quote::go_quote;

use crate::quote::{Unquoted, unquote_char};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
    Complex(f64, f64),
    /// An integer that fits only without a sign.
    Overflow,
}

/// A constant that Go rejects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NumberError {
    #[error("illegal number syntax: {}", go_quote(.0))]
    Syntax(String),
    #[error("integer overflow: {}", go_quote(.0))]
    Overflow(String),
    #[error("malformed character constant: {0}")]
    Character(String),
    #[error("invalid syntax")]
    Escape,
}

pub(crate) fn parse_char(text: &str) -> Result<Number, NumberError> {
    let (c, tail) = unquote_char(&text[1..], '\'').ok_or(NumberError::Escape)?;
    if tail != "'" {
        return Err(NumberError::Character(text.to_string()));
    }
    Ok(Number::Int(match c {
        Unquoted::Char(c) => i64::from(u32::from(c)),
        Unquoted::Byte(byte) => byte.into(),
    }))
}

/// `1+2i`.
pub(crate) fn parse_complex(text: &str) -> Result<Number, NumberError> {
    let syntax = || NumberError::Syntax(text.to_string());
    let body = text.strip_suffix('i').ok_or_else(syntax)?;
    let is_sign =
        |(at, c): &(usize, char)| *at > 0 && matches!(c, '+' | '-') && !body[..*at].ends_with(['e', 'E', 'p', 'P']);
    let (split, _) = body.char_indices().rfind(is_sign).ok_or_else(syntax)?;
    let part = |text: &str| parse_float(text).ok_or_else(syntax);
    Ok(Number::Complex(part(&body[..split])?, part(&body[split..])?))
}

pub(crate) fn parse(text: &str) -> Result<Number, NumberError> {
    if let Some(imaginary) = text.strip_suffix('i').and_then(parse_float) {
        return Ok(Number::Complex(0.0, imaginary));
    }
    match parse_integer(text) {
        Some(value) => {
            if let Ok(value) = i64::try_from(value) {
                return Ok(Number::Int(value));
            }
            if u64::try_from(value).is_ok() && !text.starts_with('+') {
                return Ok(Number::Overflow);
            }
            Err(NumberError::Overflow(text.to_string()))
        }
        None => match parse_float(text) {
            Some(_) if !text.contains(['.', 'e', 'E', 'p', 'P']) => Err(NumberError::Overflow(text.to_string())),
            Some(value) => Ok(Number::Float(value)),
            None => Err(NumberError::Syntax(text.to_string())),
        },
    }
}

/// An integer with sign, prefix and underscores.
fn parse_integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    let has_prefix = body.len() < lower.len();
    let body = if has_prefix { body.strip_prefix('_').unwrap_or(body) } else { body };
    if body.is_empty() || body.starts_with('_') || body.ends_with('_') || body.contains("__") {
        return None;
    }
    if !has_prefix && body.contains('_') {
        // Underscores need a prefix unless the number is decimal.
        let value = body.replace('_', "").parse::<i128>().ok()?;
        return Some(if negative { -value } else { value });
    }
    let value = i128::from_str_radix(&body.replace('_', ""), radix).ok()?;
    Some(if negative { -value } else { value })
}

pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.starts_with("0x") || unsigned.starts_with("0X") {
        return parse_hex_float(unsigned).map(|value| if text.starts_with('-') { -value } else { value });
    }
    let plain = text.replace('_', "");
    let is_number = plain.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    plain.parse::<f64>().ok().filter(|value| is_number && value.is_finite())
}

/// `0x1.8p3`; the exponent is required.
fn parse_hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text[2..].split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").replace('_', "");
    let value = u64::from_str_radix(&digits, 16).ok()?;
    let scale = exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    Some(value as f64 * 2f64.powi(scale)).filter(|value| value.is_finite())
}
