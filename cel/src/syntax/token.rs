//! The tokens of CEL, as upstream's generated lexer finds them: the longest match wins, and text that begins no token
//! is reported and skipped.

use super::source::{Issue, Source};

/// The kind of a token. The numbers are the order in which error messages list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    End = 0,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
}

pub(crate) const KINDS: [Kind; 36] = {
    use Kind::*;
    [
        End,
        Equals,
        NotEquals,
        In,
        Less,
        LessEquals,
        GreaterEquals,
        Greater,
        And,
        Or,
        LeftBracket,
        RightBracket,
        LeftBrace,
        RightBrace,
        LeftParen,
        RightParen,
        Dot,
        Comma,
        Minus,
        Exclamation,
        Question,
        Colon,
        Plus,
        Star,
        Slash,
        Percent,
        True,
        False,
        Null,
        Float,
        Int,
        Uint,
        String,
        Bytes,
        Identifier,
        EscapedIdentifier,
    ]
};

const SYMBOLS: [(&str, Kind); 25] = [
    ("==", Kind::Equals),
    ("!=", Kind::NotEquals),
    ("<=", Kind::LessEquals),
    (">=", Kind::GreaterEquals),
    ("&&", Kind::And),
    ("||", Kind::Or),
    ("<", Kind::Less),
    (">", Kind::Greater),
    ("[", Kind::LeftBracket),
    ("]", Kind::RightBracket),
    ("{", Kind::LeftBrace),
    ("}", Kind::RightBrace),
    ("(", Kind::LeftParen),
    (")", Kind::RightParen),
    (".", Kind::Dot),
    (",", Kind::Comma),
    ("-", Kind::Minus),
    ("!", Kind::Exclamation),
    ("?", Kind::Question),
    (":", Kind::Colon),
    ("+", Kind::Plus),
    ("*", Kind::Star),
    ("/", Kind::Slash),
    ("%", Kind::Percent),
    ("in", Kind::In),
];

impl Kind {
    /// As error messages show it.
    pub(crate) fn label(self) -> String {
        let name = match self {
            Kind::End => "<EOF>",
            Kind::Float => "NUM_FLOAT",
            Kind::Int => "NUM_INT",
            Kind::Uint => "NUM_UINT",
            Kind::String => "STRING",
            Kind::Bytes => "BYTES",
            Kind::Identifier => "IDENTIFIER",
            Kind::EscapedIdentifier => "ESC_IDENTIFIER",
            Kind::True => "'true'",
            Kind::False => "'false'",
            Kind::Null => "'null'",
            _ => return format!("'{}'", self.symbol()),
        };
        name.to_owned()
    }

    fn symbol(self) -> &'static str {
        SYMBOLS.iter().find(|(_, kind)| *kind == self).map_or("", |(text, _)| text)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// The offset of its first character in code points.
    pub(crate) offset: u32,
    /// The same in bytes.
    pub(crate) byte: usize,
}

/// The tokens, with `End` as the last one, and the errors of invalid text.
pub(crate) fn tokenize<'a>(source: &Source<'_>, text: &'a str) -> (Vec<Token<'a>>, Vec<Issue>) {
    let mut lexer = Lexer { text, byte: 0, offset: 0, tokens: Vec::new(), errors: Vec::new() };
    while lexer.byte < text.len() {
        lexer.step(source);
    }
    lexer.push(Kind::End, 0);
    (lexer.tokens, lexer.errors)
}

struct Lexer<'a> {
    text: &'a str,
    byte: usize,
    offset: u32,
    tokens: Vec<Token<'a>>,
    errors: Vec<Issue>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.byte..]
    }

    fn skip(&mut self, bytes: usize) {
        let skipped = self.rest()[..bytes].chars().count();
        self.offset += u32::try_from(skipped).unwrap_or(u32::MAX);
        self.byte += bytes;
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let token = Token { kind, text: &self.rest()[..length], offset: self.offset, byte: self.byte };
        self.tokens.push(token);
        self.skip(length);
    }

    fn step(&mut self, source: &Source<'_>) {
        let rest = self.rest();
        let hidden = hidden_length(rest);
        if hidden > 0 {
            return self.skip(hidden);
        }
        match scan(rest) {
            Ok((kind, length)) => self.push(kind, length),
            Err(failed) => {
                // The text up to the character that does not fit, which is skipped too.
                let end = rest[failed..].chars().next().map_or(rest.len(), |c| failed + c.len_utf8());
                let message = format!("Syntax error: token recognition error at: '{}'", &rest[..end]);
                self.errors.push(source.error(Some(self.offset), message));
                self.skip(end);
            }
        }
    }
}

/// The length of white space or a comment.
fn hidden_length(rest: &str) -> usize {
    if rest.starts_with("//") {
        return memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
    }
    rest.bytes().take_while(|byte| matches!(byte, b'\t' | b' ' | b'\r' | b'\n' | 0x0c)).count()
}

/// The kind and length of the token at the start, or where no token can continue.
fn scan(rest: &str) -> Result<(Kind, usize), usize> {
    let bytes = rest.as_bytes();
    match bytes[0] {
        b'0'..=b'9' => Ok(scan_number(bytes)),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => Ok(scan_number(bytes)),
        b'"' | b'\'' => scan_string(rest, 0, false).map(|length| (Kind::String, length)),
        b'`' => scan_escaped_identifier(bytes),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => Ok(scan_word(rest)),
        _ => scan_symbol(rest),
    }
}

fn scan_symbol(rest: &str) -> Result<(Kind, usize), usize> {
    let found = SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol));
    let partial = usize::from(matches!(rest.as_bytes()[0], b'=' | b'&' | b'|'));
    found.map(|(symbol, kind)| (*kind, symbol.len())).ok_or(partial)
}

fn scan_escaped_identifier(bytes: &[u8]) -> Result<(Kind, usize), usize> {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' ');
    let length = bytes[1..].iter().take_while(is_part).count();
    let closed = length > 0 && bytes.get(length + 1) == Some(&b'`');
    if closed { Ok((Kind::EscapedIdentifier, length + 2)) } else { Err(length + 1) }
}

/// An identifier, a keyword, or a string with a prefix.
fn scan_word(rest: &str) -> (Kind, usize) {
    if let Some(found) = scan_prefixed_string(rest) {
        return found;
    }
    let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let kind = match &rest[..length] {
        "in" => Kind::In,
        "true" => Kind::True,
        "false" => Kind::False,
        "null" => Kind::Null,
        _ => Kind::Identifier,
    };
    (kind, length)
}

fn scan_prefixed_string(rest: &str) -> Option<(Kind, usize)> {
    let bytes = rest.as_bytes();
    let is_bytes = matches!(bytes[0], b'b' | b'B');
    let prefix = usize::from(is_bytes);
    let is_raw = matches!(bytes.get(prefix), Some(b'r' | b'R'));
    let start = prefix + usize::from(is_raw);
    if start == 0 || !matches!(bytes.get(start), Some(b'"' | b'\'')) {
        return None;
    }
    let length = scan_string(rest, start, is_raw).ok()?;
    Some((if is_bytes { Kind::Bytes } else { Kind::String }, length))
}

/// The end of the string whose quote is at `start`, or where it fails.
fn scan_string(rest: &str, start: usize, is_raw: bool) -> Result<usize, usize> {
    let quote = rest.as_bytes()[start];
    let triple = [quote; 3];
    if rest.as_bytes()[start..].starts_with(&triple)
        && let Ok(end) = scan_quoted(rest.as_bytes(), start + 3, &triple, is_raw)
    {
        return Ok(end);
    }
    scan_quoted(rest.as_bytes(), start + 1, &[quote], is_raw)
}

fn scan_quoted(bytes: &[u8], start: usize, close: &[u8], is_raw: bool) -> Result<usize, usize> {
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(close) {
            return Ok(at + close.len());
        }
        match bytes[at] {
            b'\\' if !is_raw => at = scan_escape(bytes, at + 1)?,
            b'\n' | b'\r' if close.len() == 1 => return Err(at),
            _ => at += 1,
        }
    }
    Err(bytes.len())
}

/// The end of the escape whose letter is at `at`, or where it fails.
fn scan_escape(bytes: &[u8], at: usize) -> Result<usize, usize> {
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit();
    let is_octal = |byte: &u8| (b'0'..=b'7').contains(byte);
    let (count, accept): (usize, &dyn Fn(&u8) -> bool) = match bytes.get(at) {
        Some(b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`') => (0, &is_hex),
        Some(b'x' | b'X') => (2, &is_hex),
        Some(b'u') => (4, &is_hex),
        Some(b'U') => (8, &is_hex),
        Some(b'0'..=b'3') => (2, &is_octal),
        _ => return Err(at),
    };
    let digits = bytes[at + 1..].iter().take(count).take_while(|byte| accept(byte)).count();
    if digits == count { Ok(at + 1 + count) } else { Err(at + 1 + digits) }
}

fn scan_number(bytes: &[u8]) -> (Kind, usize) {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unsigned = |length: usize| match bytes.get(length) {
        Some(b'u' | b'U') => (Kind::Uint, length + 1),
        _ => (Kind::Int, length),
    };
    if bytes.starts_with(b"0x") {
        let length = bytes[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        return if length > 0 { unsigned(2 + length) } else { (Kind::Int, 1) };
    }
    let whole = digits(0);
    let fraction = if bytes.get(whole) == Some(&b'.') { digits(whole + 1) } else { 0 };
    let mut end = if fraction > 0 { whole + 1 + fraction } else { whole };
    let mut is_float = fraction > 0;
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits((end + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            (is_float, end) = (true, end + 1 + sign + exponent);
        }
    }
    if is_float { (Kind::Float, end) } else { unsigned(end) }
}
