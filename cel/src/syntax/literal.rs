//! The values of literals.

use super::ast::Literal;
use super::token::{Kind, Token};

/// Why a literal has no value. Most strings with wrong escapes are not even tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LiteralError {
    #[error("invalid int literal")]
    Int,
    #[error("invalid uint literal")]
    Uint,
    #[error("invalid double literal")]
    Double,
    #[error("unable to unescape string")]
    Escape,
    #[error("invalid unicode code point")]
    CodePoint,
}

/// The value of a literal with its sign; none if the token is no literal.
pub(super) fn read(negative: bool, token: Token<'_>) -> Option<Result<Literal, LiteralError>> {
    let sign = if negative { "-" } else { "" };
    Some(match token.kind {
        Kind::Int => read_int(sign, token.text).ok_or(LiteralError::Int),
        Kind::Float => read_double(sign, token.text).ok_or(LiteralError::Double),
        _ if negative => return None,
        Kind::Uint => read_uint(token.text).ok_or(LiteralError::Uint),
        Kind::String => unescape_string(token.text).map(|text| Literal::String(text.into())),
        Kind::Bytes => unescape_bytes(&token.text[1..]).map(|bytes| Literal::Bytes(bytes.into())),
        Kind::True => Ok(Literal::Bool(true)),
        Kind::False => Ok(Literal::Bool(false)),
        Kind::Null => Ok(Literal::Null),
        _ => return None,
    })
}

fn read_int(sign: &str, text: &str) -> Option<Literal> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok().map(Literal::Int)
}

fn read_uint(text: &str) -> Option<Literal> {
    let text = text.trim_end_matches(['u', 'U']);
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    u64::from_str_radix(digits, radix).ok().map(Literal::Uint)
}

fn read_double(sign: &str, text: &str) -> Option<Literal> {
    let value: f64 = format!("{sign}{text}").parse().ok()?;
    value.is_finite().then_some(Literal::Double(value))
}

/// The content of a string literal with its quotes and prefix.
fn unescape_string(literal: &str) -> Result<String, LiteralError> {
    let (content, is_raw) = strip_quotes(literal)?;
    let content = content.replace("\r\n", "\n").replace('\r', "\n");
    if is_raw || !content.contains('\\') {
        return Ok(content);
    }
    let mut out = String::with_capacity(content.len());
    let mut rest = content.as_str();
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (value, length) = read_escape(&rest[at + 1..])?;
        out.push(char::from_u32(value).ok_or(LiteralError::CodePoint)?);
        rest = &rest[at + 1 + length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The content of a bytes literal, without its `b`.
fn unescape_bytes(literal: &str) -> Result<Vec<u8>, LiteralError> {
    let (content, is_raw) = strip_quotes(literal)?;
    let content = content.replace("\r\n", "\n").replace('\r', "\n");
    if is_raw {
        return Ok(content.into_bytes());
    }
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content.as_str();
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        if rest[at + 1..].starts_with(['u', 'U']) {
            return Err(LiteralError::Escape);
        }
        let (value, length) = read_escape(&rest[at + 1..])?;
        out.push(u8::try_from(value).map_err(|_| LiteralError::Escape)?);
        rest = &rest[at + 1 + length..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

fn strip_quotes(literal: &str) -> Result<(&str, bool), LiteralError> {
    let quoted = literal.strip_prefix(['r', 'R']).unwrap_or(literal);
    let is_raw = quoted.len() < literal.len();
    for quote in ["'''", "\"\"\"", "'", "\""] {
        let inner = quoted.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        if let Some(inner) = inner {
            return Ok((inner, is_raw));
        }
    }
    Err(LiteralError::Escape)
}

/// The code of an escape and its length, both without the backslash.
fn read_escape(text: &str) -> Result<(u32, usize), LiteralError> {
    let letter = text.bytes().next().ok_or(LiteralError::Escape)?;
    let digits = |from: usize, count: usize, radix: u32| {
        let digits = text.get(from..from + count).ok_or(LiteralError::Escape)?;
        let value = u32::from_str_radix(digits, radix).map_err(|_| LiteralError::Escape)?;
        Ok((value, from + count))
    };
    let simple = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => 10,
        b'r' => 13,
        b't' => 9,
        b'v' => 11,
        b'\\' | b'\'' | b'"' | b'`' | b'?' => u32::from(letter),
        b'x' | b'X' => return digits(1, 2, 16),
        b'u' => return digits(1, 4, 16),
        b'U' => return digits(1, 8, 16),
        b'0'..=b'3' => return digits(0, 3, 8),
        _ => return Err(LiteralError::Escape),
    };
    Ok((simple, 1))
}
