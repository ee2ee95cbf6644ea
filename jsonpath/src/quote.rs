//! Quoted strings of expressions: Go's escapes, in single or double quotes.

/// The text of a quoted string with its quotes; None if it is malformed.
pub(crate) fn unquote(quoted: &str) -> Option<String> {
    let quote = quoted.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inside = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    if !inside.contains(['\\', quote]) {
        return Some(inside.to_string());
    }
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = unescape(rest, quote, &mut bytes)?,
            c if c == quote => return None,
            c => push(&mut bytes, c),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Appends what the escape after a backslash stands for; returns the text after it.
fn unescape<'a>(text: &'a str, quote: char, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let letter = text.chars().next()?;
    let rest = &text[letter.len_utf8()..];
    let byte = match letter {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        c if c == quote => c as u8,
        'x' => return number(rest, 2, 16, bytes, false),
        'u' => return number(rest, 4, 16, bytes, true),
        'U' => return number(rest, 8, 16, bytes, true),
        '0'..='7' => return number(text, 3, 8, bytes, false),
        _ => return None,
    };
    bytes.push(byte);
    Some(rest)
}

fn number<'a>(text: &'a str, digits: usize, radix: u32, bytes: &mut Vec<u8>, is_char: bool) -> Option<&'a str> {
    let (number, rest) = text.split_at_checked(digits)?;
    if !number.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let number = u32::from_str_radix(number, radix).ok()?;
    if is_char {
        push(bytes, char::from_u32(number)?);
    } else {
        bytes.push(u8::try_from(number).ok()?);
    }
    Some(rest)
}
