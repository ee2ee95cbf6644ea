//! Why text is no address, in the words of Go's parser. It is only called for text that is none.

/// The bytes of an IPv6 address.
const LENGTH: usize = 16;

/// The error, and its position if the message contains it.
struct Flaw<'t>(&'static str, &'t str);

/// The message of `netip.ParseAddr`.
pub(super) fn describe_ip(text: &str) -> String {
    let flaw = match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => find_v4_flaw(text),
        Some(b':') => find_v6_flaw(text),
        Some(_) => Some(Flaw("missing IPv6 address", "")),
        None => Some(Flaw("unable to parse IP", "")),
    };
    let Flaw(message, at) = flaw.unwrap_or(Flaw("unable to parse IP", ""));
    let position = if at.is_empty() { String::new() } else { format!(" (at {})", api::quote::go_quote(at)) };
    format!("ParseAddr({}): {message}{position}", api::quote::go_quote(text))
}

fn find_v4_flaw(text: &str) -> Option<Flaw<'_>> {
    let bytes = text.as_bytes();
    let (mut value, mut digits, mut dots) = (0, 0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' if digits == 1 && value == 0 => {
                return Some(Flaw("IPv4 field has octet with leading zero", ""));
            }
            b'0'..=b'9' => {
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Some(Flaw("IPv4 field has value >255", ""));
                }
            }
            b'.' if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' => {
                return Some(Flaw("IPv4 field must have at least one digit", &text[at..]));
            }
            b'.' if dots == 3 => return Some(Flaw("IPv4 address too long", "")),
            b'.' => (value, digits, dots) = (0, 0, dots + 1),
            _ => return Some(Flaw("unexpected character", text.get(at..).unwrap_or(""))),
        }
    }
    (dots < 3).then_some(Flaw("IPv4 address too short", ""))
}

fn find_v6_flaw(text: &str) -> Option<Flaw<'_>> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(rest, zone)| (rest, Some(zone)));
    if zone == Some("") {
        return Some(Flaw("zone must be a non-empty string", ""));
    }
    let mut ellipsis = rest.starts_with("::");
    let (mut length, mut ended) = (0, false);
    if ellipsis {
        rest = &rest[2..];
    }
    while length < LENGTH && !ended {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if let Some(flaw) = find_field_flaw(rest, digits) {
            return Some(flaw);
        }
        if rest[digits..].starts_with('.') {
            return find_embedded_flaw(rest, length, ellipsis);
        }
        length += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        match next_field(rest, &mut ellipsis) {
            Ok(next) => rest = next,
            Err(flaw) => return Some(flaw),
        }
        ended = rest.is_empty();
    }
    match (rest.is_empty(), length < LENGTH, ellipsis) {
        (false, _, _) => Some(Flaw("trailing garbage after address", rest)),
        (true, true, false) => Some(Flaw("address string too short", "")),
        (true, false, true) => Some(Flaw("the :: must expand to at least one field of zeros", "")),
        _ => None,
    }
}

fn find_field_flaw(rest: &str, digits: usize) -> Option<Flaw<'_>> {
    match digits {
        0 => Some(Flaw("each colon-separated field must have at least one digit", rest)),
        1..=4 => None,
        _ => Some(Flaw("each group must have 4 or less digits", rest)),
    }
}

/// An IPv4 address at the end of an IPv6 address.
fn find_embedded_flaw(rest: &str, length: usize, ellipsis: bool) -> Option<Flaw<'_>> {
    if !ellipsis && length != LENGTH - 4 {
        return Some(Flaw("embedded IPv4 address must replace the final 2 fields of the address", rest));
    }
    if length + 4 > LENGTH {
        return Some(Flaw("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
    }
    find_v4_flaw(rest)
}

/// The text after the colons that follow a field.
fn next_field<'t>(rest: &'t str, ellipsis: &mut bool) -> Result<&'t str, Flaw<'t>> {
    let Some(next) = rest.strip_prefix(':') else { return Err(Flaw("unexpected character, want colon", rest)) };
    if next.is_empty() {
        return Err(Flaw("colon must be followed by more characters", rest));
    }
    let Some(after) = next.strip_prefix(':') else { return Ok(next) };
    if std::mem::replace(ellipsis, true) {
        return Err(Flaw("multiple :: in address", next));
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_wrong() {
        let cases = [
            ("x", "unable to parse IP"),
            ("", "unable to parse IP"),
            ("%eth0", "missing IPv6 address"),
            ("1.2.3", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1.2.3.256", "IPv4 field has value >255"),
            ("01.2.3.4", "IPv4 field has octet with leading zero"),
            ("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")"),
            ("1.2.3.x", "unexpected character (at \"x\")"),
            ("2001:db8:::68", "each colon-separated field must have at least one digit (at \":68\")"),
            ("1::2::3", "multiple :: in address (at \":3\")"),
            ("1:2", "address string too short"),
            ("1:", "colon must be followed by more characters (at \":\")"),
            ("12345::", "each group must have 4 or less digits (at \"12345::\")"),
            ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
            ("::1%", "zone must be a non-empty string"),
            ("::g", "each colon-separated field must have at least one digit (at \"g\")"),
            ("1:é", "each colon-separated field must have at least one digit (at \"é\")"),
        ];
        for (text, message) in cases {
            assert_eq!(describe_ip(text), format!("ParseAddr({}): {message}", api::quote::go_quote(text)));
        }
    }
}
