//! Strings in quotes, as Go writes them.

use std::fmt::Write;

/// The letter that represents a character after a backslash.
pub fn escape_letter(char: char) -> Option<char> {
    Some(match char {
        '"' | '\\' => char,
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\u{b}' => 'v',
        _ => return None,
    })
}

/// Go's `%q`.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        let code = u32::from(char);
        // Writing to a string does not fail.
        let _ = match (char, escape_letter(char)) {
            (_, Some(letter)) => write!(out, "\\{letter}"),
            (' '..='~', None) => out.write_char(char),
            _ if char.is_ascii() => write!(out, "\\x{code:02x}"),
            _ if is_printable(char) => out.write_char(char),
            _ if code > 0xffff => write!(out, "\\U{code:08x}"),
            _ => write!(out, "\\u{code:04x}"),
        };
    }
    out.push('"');
    out
}

fn is_printable(char: char) -> bool {
    let is_format = matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let is_private = matches!(char, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..);
    !char.is_control() && !char.is_whitespace() && !is_format && !is_private
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        for (text, want) in [
            ("a b", r#""a b""#),
            ("\"\\", r#""\"\\""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\0\u{1f}\u{7f}", r#""\x00\x1f\x7f""#),
            ("ä\u{fffd}😀", "\"ä\u{fffd}😀\""),
            ("\u{80}\u{a0}\u{ad}\u{200b}\u{2028}\u{feff}\u{e000}", r#""\u0080\u00a0\u00ad\u200b\u2028\ufeff\ue000""#),
            ("\u{f0000}", r#""\U000f0000""#),
        ] {
            assert_eq!(go_quote(text), want);
        }
    }
}
