//! Strings with escapes, and numbers.

use super::{Decoder, Error};
use crate::tree::{Str, Tree};

impl Decoder<'_> {
    pub(super) fn string(&mut self) -> Result<Str, Error> {
        self.at += 1;
        let start = self.at;
        let rest = &self.bytes[start..];
        match memchr::memchr2(b'"', b'\\', rest) {
            None => Err(self.string_end(self.bytes.len(), start)),
            Some(length) if rest[length] == b'"' => {
                self.no_controls(start, start + length)?;
                self.at = start + length + 1;
                Ok(Str::new(&self.text[start..start + length]))
            }
            Some(_) => self.escaped_string(start),
        }
    }

    /// An unterminated string: the error is the first control character, or the end.
    fn string_end(&mut self, end: usize, start: usize) -> Error {
        self.no_controls(start, end).err().unwrap_or(Error::UnexpectedEnd)
    }

    fn no_controls(&mut self, start: usize, end: usize) -> Result<(), Error> {
        let bytes = &self.bytes[start..end];
        // Checked without a branch per byte; only an invalid one is located.
        if bytes.iter().fold(true, |fine, byte| fine & (*byte >= 0x20)) {
            return Ok(());
        }
        match bytes.iter().position(|byte| *byte < 0x20) {
            None => Ok(()),
            Some(offset) => {
                self.at = start + offset;
                Err(self.invalid("in string literal"))
            }
        }
    }

    fn escaped_string(&mut self, start: usize) -> Result<Str, Error> {
        let mut out = String::new();
        self.at = start;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(length) = memchr::memchr2(b'"', b'\\', rest) else {
                return Err(self.string_end(self.bytes.len(), self.at));
            };
            self.no_controls(self.at, self.at + length)?;
            out.push_str(&self.text[self.at..self.at + length]);
            self.at += length + 1;
            if rest[length] == b'"' {
                return Ok(Str::from(out));
            }
            self.escape(&mut out)?;
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Error> {
        let c = match self.bytes.get(self.at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(out),
            _ => return Err(self.invalid("in string escape code")),
        };
        out.push(c);
        self.at += 1;
        Ok(())
    }

    fn unicode_escape(&mut self, out: &mut String) -> Result<(), Error> {
        self.at += 1;
        let high = self.hex4()?;
        let pair = (0xD800..0xDC00).contains(&high) && self.bytes[self.at..].starts_with(b"\\u");
        if pair {
            let back = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                out.push(char::from_u32(code).unwrap_or('\u{FFFD}'));
                return Ok(());
            }
            self.at = back;
        }
        out.push(char::from_u32(high).unwrap_or('\u{FFFD}'));
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.bytes.get(self.at).and_then(|byte| (*byte as char).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.invalid("in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(code)
    }

    pub(super) fn number(&mut self) -> Result<Tree, Error> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.invalid("in numeric literal")),
        }
        let mut integer = true;
        if self.bytes.get(self.at) == Some(&b'.') {
            integer = false;
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            integer = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        parse_number(&self.text[start..self.at], integer)
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, place: &'static str) -> Result<(), Error> {
        if !matches!(self.bytes.get(self.at), Some(b'0'..=b'9')) {
            return Err(self.invalid(place));
        }
        self.digits();
        Ok(())
    }
}

fn parse_number(text: &str, integer: bool) -> Result<Tree, Error> {
    if integer && let Ok(value) = text.parse::<i64>() {
        return Ok(Tree::Int(value));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Tree::Float(value)),
        _ => Err(Error::BadNumber),
    }
}
