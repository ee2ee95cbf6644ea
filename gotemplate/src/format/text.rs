//! Strings: plain, quoted and in hexadecimal.

use std::fmt::Write;

use api::quote::go_quote;

use super::verbs::Printer;

impl Printer {
    pub(super) fn print_text(&mut self, text: &[u8], verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v => self.write_quoted(text),
            'v' | 's' => {
                let text = self.truncated(text);
                self.pad(text);
            }
            'q' => self.write_quoted(text),
            'x' => self.write_hexadecimal(text, false),
            'X' => self.write_hexadecimal(text, true),
            _ => return false,
        }
        true
    }

    /// The first characters, as many as the precision says.
    fn truncated<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let Some(precision) = self.flags.precision else { return text };
        let mut rest = text;
        for _ in 0..precision {
            rest = &rest[char_length(rest)..];
        }
        &text[..text.len() - rest.len()]
    }

    fn write_quoted(&mut self, text: &[u8]) {
        let text = self.truncated(text);
        let plain = std::str::from_utf8(text).ok();
        let quoted = match plain {
            Some(plain) if self.flags.sharp && can_backquote(plain) => format!("`{plain}`"),
            _ => quote(text, self.flags.plus),
        };
        self.pad(quoted.as_bytes());
    }

    /// Each byte as two digits. The flags are those of `fmt`: a space between bytes, 0x before them.
    fn write_hexadecimal(&mut self, text: &[u8], upper: bool) {
        let length = self.flags.precision.map_or(text.len(), |precision| precision.min(text.len()));
        let prefix = if upper { "0X" } else { "0x" };
        let mut out = String::with_capacity(length * 2);
        for (at, byte) in text[..length].iter().enumerate() {
            if at > 0 && self.flags.space {
                out.push(' ');
            }
            if self.flags.sharp && (at == 0 || self.flags.space) {
                out.push_str(prefix);
            }
            // Writing to a string does not fail.
            let _ = if upper { write!(out, "{byte:02X}") } else { write!(out, "{byte:02x}") };
        }
        self.pad(out.as_bytes());
    }
}

/// The length of the first character; an invalid byte is one.
pub(super) fn char_length(text: &[u8]) -> usize {
    let head = &text[..text.len().min(4)];
    match std::str::from_utf8(head) {
        Ok(valid) => valid.chars().next().map_or(0, char::len_utf8),
        Err(error) if error.valid_up_to() > 0 => {
            let valid = std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default();
            valid.chars().next().map_or(1, char::len_utf8)
        }
        Err(_) => 1,
    }
}

pub(super) fn count_chars(text: &[u8]) -> usize {
    let invalid = |chunk: std::str::Utf8Chunk| chunk.valid().chars().count() + chunk.invalid().len();
    text.utf8_chunks().map(invalid).sum()
}

fn can_backquote(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || !(c.is_control() || c == '`' || c == '\u{feff}'))
}

pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '"' | '\\') || !go_quote(c.encode_utf8(&mut [0; 4])).starts_with("\"\\")
}

/// A string in double quotes, in ASCII if requested.
fn quote(text: &[u8], ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            write_escaped(&mut out, c, '"', ascii);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

pub(super) fn quote_char(c: char, ascii: bool) -> String {
    let mut out = "'".to_string();
    write_escaped(&mut out, c, '\'', ascii);
    out.push('\'');
    out
}

fn write_escaped(out: &mut String, c: char, quote: char, ascii: bool) {
    let code = u32::from(c);
    let _ = match c {
        '"' | '\'' if c != quote => write!(out, "{c}"),
        c if c == quote => write!(out, "\\{c}"),
        c if c.is_ascii() || !ascii => {
            let quoted = go_quote(c.encode_utf8(&mut [0; 4]));
            write!(out, "{}", &quoted[1..quoted.len() - 1])
        }
        _ if code > 0xffff => write!(out, "\\U{code:08x}"),
        _ => write!(out, "\\u{code:04x}"),
    };
}
