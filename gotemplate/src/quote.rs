//! Go's quoted strings and characters.

/// The bytes of a string in double quotes or backquotes, with its quotes.
pub(crate) fn unquote(quoted: &str) -> Option<Vec<u8>> {
    if let Some(raw) = quoted.strip_prefix('`') {
        let raw = raw.strip_suffix('`')?;
        return Some(raw.bytes().filter(|byte| *byte != b'\r').collect());
    }
    let mut rest = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        rest = match unquote_char(rest, '"')? {
            (Unquoted::Char(c), rest) => {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest
            }
            (Unquoted::Byte(byte), rest) => {
                bytes.push(byte);
                rest
            }
        };
    }
    Some(bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unquoted {
    Char(char),
    Byte(u8),
}

/// The first character of the inside of a quoted string, and the text after it.
pub(crate) fn unquote_char(text: &str, quote: char) -> Option<(Unquoted, &str)> {
    let mut chars = text.chars();
    let first = chars.next().filter(|first| *first != quote && *first != '\n')?;
    if first != '\\' {
        return Some((Unquoted::Char(first), chars.as_str()));
    }
    let letter = chars.next()?;
    let rest = chars.as_str();
    let c = match letter {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        c if c == quote => c,
        'x' => {
            return numeric(rest, 2, 16).and_then(|(code, rest)| Some((Unquoted::Byte(code.try_into().ok()?), rest)));
        }
        'u' => {
            return numeric(rest, 4, 16).and_then(|(code, rest)| Some((Unquoted::Char(char::from_u32(code)?), rest)));
        }
        'U' => {
            return numeric(rest, 8, 16).and_then(|(code, rest)| Some((Unquoted::Char(char::from_u32(code)?), rest)));
        }
        '0'..='7' => {
            let (code, rest) = numeric(&text[1..], 3, 8)?;
            return Some((Unquoted::Byte(code.try_into().ok()?), rest));
        }
        _ => return None,
    };
    Some((Unquoted::Char(c), rest))
}

fn numeric(text: &str, digits: usize, radix: u32) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let is_number = number.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u32::from_str_radix(number, radix).ok()).flatten().map(|code| (code, rest))
}
