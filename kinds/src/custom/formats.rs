//! The formats of strings in schemas.

use std::net::IpAddr;
use std::sync::LazyLock;

use api::formats::{is_base64, is_date, is_date_time};
use api::{time, validation};
use regex_automata::nfa::thompson::pikevm::PikeVM;

/// Whether values of a format are checked; dashes in its name do not count.
pub(crate) fn is_known(format: &str) -> bool {
    check_of(format).is_some()
}

/// Whether a text has a format. Unknown formats have every text.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    check_of(format).is_none_or(|check| check(text))
}

fn check_of(format: &str) -> Option<fn(&str) -> bool> {
    // These two have their dashes only with the name as it is written.
    let check: fn(&str) -> bool = match format.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| matches!(validation::ip::parse_ip(text), Some(IpAddr::V4(_))),
        "ipv6" => |text| text.contains(':') && validation::ip::parse_ip(text).is_some(),
        "cidr" => |text| validation::ip::parse_cidr(text).is_some(),
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some('3')),
        "uuid4" => |text| is_uuid(text, Some('4')),
        "uuid5" => |text| is_uuid(text, Some('5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| SSN.matches(text),
        "hexcolor" => |text| HEX_COLOR.matches(text),
        "rgbcolor" => |text| RGB_COLOR.matches(text),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        _ if format == "k8s-short-name" => |text| validation::dns1123_label(text).is_empty(),
        _ if format == "k8s-long-name" => |text| validation::dns1123_subdomain(text).is_empty(),
        _ => return None,
    };
    Some(check)
}

struct Expression(LazyLock<Option<PikeVM>>);

impl Expression {
    fn matches(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|vm| vm.is_match(&mut vm.create_cache(), text))
    }
}

static SSN: Expression = Expression(LazyLock::new(|| PikeVM::new(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$").ok()));
static HEX_COLOR: Expression = Expression(LazyLock::new(|| PikeVM::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok()));
static RGB_COLOR: Expression = Expression(LazyLock::new(|| {
    let part = "(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])";
    PikeVM::new(&format!(r"^rgb\(\s*{part}\s*,\s*{part}\s*,\s*{part}\s*\)$")).ok()
}));
static CREDIT_CARD: Expression = Expression(LazyLock::new(|| {
    PikeVM::new(concat!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
    .ok()
}));
static SCALA_DURATION: Expression = Expression(LazyLock::new(|| {
    PikeVM::new(concat!(
        r"^(-?[0-9]+) ?(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?",
        r"|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)$"
    ))
    .ok()
}));

/// An absolute URI, or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f || byte == b' ') {
        return false;
    }
    if text.starts_with('/') {
        return has_valid_escapes(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme && has_valid_escapes(rest) && has_valid_port(rest)
}

fn has_valid_escapes(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    escapes.all(|(at, _)| is_hex(bytes.get(at + 1)) && is_hex(bytes.get(at + 2)))
}

fn has_valid_port(rest: &str) -> bool {
    let Some(authority) = rest.strip_prefix("//") else { return true };
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    let host = authority[..end].rsplit('@').next().unwrap_or("");
    match host.rsplit_once(':') {
        Some((before, port)) if !before.contains('[') || before.ends_with(']') => {
            port.bytes().all(|b| b.is_ascii_digit())
        }
        _ => true,
    }
}

/// `a@b`, `<a@b>` and `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.trim_end().ends_with('>')) {
        (Some(start), true) => &text.trim_end()[start + 1..text.trim_end().len() - 1],
        (None, false) => text.trim(),
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let is_dot_atom = |part: &str| part.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom));
    let is_quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    (is_quoted || is_dot_atom(local)) && (is_literal || is_dot_atom(domain))
}

fn is_hostname(text: &str) -> bool {
    let is_char = |c: char| {
        c.is_ascii_alphanumeric() || (!c.is_ascii() && !c.is_control() && !c.is_whitespace()) || "$+<=>^`|~".contains(c)
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| is_char(c) || c == '-')
            && label.starts_with(is_char)
            && label.ends_with(is_char)
    };
    if text.len() > 255 {
        return false;
    }
    match text.rsplit_once('.') {
        None => is_label(text),
        Some((labels, top)) => {
            let letters = top.chars().count();
            labels.split('.').all(is_label) && (2..=63).contains(&letters) && top.chars().all(|c| c.is_alphabetic())
        }
    }
}

fn is_mac(text: &str) -> bool {
    let is_hex = |part: &str, size: usize| part.len() == size && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (separator, size, counts) in [(':', 2, [6, 8, 20]), ('-', 2, [6, 8, 20]), ('.', 4, [3, 4, 10])] {
        let parts: Vec<&str> = text.split(separator).collect();
        if counts.contains(&parts.len()) && parts.iter().all(|part| is_hex(part, size)) {
            return true;
        }
    }
    false
}

/// Upper case is allowed, dashes are optional.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::with_capacity(32);
    let mut rest = text;
    for (position, size) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if position > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(part) = rest.get(..size) else { return false };
        digits.push_str(part);
        rest = &rest[size..];
    }
    let digit = |at: usize| digits.as_bytes().get(at).map(u8::to_ascii_lowercase);
    rest.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && version.is_none_or(|version| digit(12) == Some(version as u8))
        && (!matches!(version, Some('4' | '5')) || matches!(digit(16), Some(b'8' | b'9' | b'a' | b'b')))
}

fn is_isbn10(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let value = |(at, c): (usize, char)| match c {
        '0'..='9' => c.to_digit(10),
        'X' if at == 9 => Some(10),
        _ => None,
    };
    let digits: Option<Vec<u32>> = text.chars().enumerate().map(value).collect();
    digits.is_some_and(|digits| {
        digits.len() == 10 && digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let weigh = |(at, digit): (usize, &u32)| digit * if at % 2 == 0 { 1 } else { 3 };
        digits.len() == 13 && digits.iter().enumerate().map(weigh).sum::<u32>() % 10 == 0
    })
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    CREDIT_CARD.matches(&digits) && has_luhn_sum(&digits)
}

fn has_luhn_sum(digits: &str) -> bool {
    let double = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let values = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    values.map(|(at, digit)| if at % 2 == 1 { double(digit) } else { digit }).sum::<u32>() % 10 == 0
}

/// The forms of Go and of Scala: `1h30m`, `3 days`.
fn is_duration(text: &str) -> bool {
    time::parse_duration(text).is_ok() || SCALA_DURATION.matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_reject() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.1+02:00"],
                &["yesterday", "2024-01-02", "2024-13-02T03:04:05Z"],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9"]),
            ("email", &["a@b.c", "A B <a@b.c>"], &["x", "a@", "@b", "a b@c"]),
            ("hostname", &["a", "a-b.example.com", "1.example.com"], &["-a", "a_b", "a..b", "a.1"]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "x"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00:5e:00:53", "zz:00:5e:00:53:01"]),
            ("uuid", &["F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", "f81d4fae7dec11d0a76500a0c91e6bf6"], &["f81d4fae"]),
            ("uuid4", &["16b02430-0a1e-4b2e-8d2a-1e0f2c3d4e5f"], &["16b02430-0a1e-3b2e-8d2a-1e0f2c3d4e5f"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044", "1"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]),
            ("ssn", &["111-22-3333"], &["111-22-333"]),
            ("hexcolor", &["#fff", "FFFFFF"], &["#ff"]),
            ("rgbcolor", &["rgb(1,2,255)"], &["rgb(1,2,256)"]),
            ("byte", &["YQ=="], &["YQ", "?"]),
            ("duration", &["1h2m", "3 days", "5s"], &["x", "3 lightyears"]),
            ("uri", &["http://a/b?c", "/a"], &["a b", "a"]),
            ("password", &["anything"], &[]),
            ("k8s-short-name", &["a-b"], &["A"]),
            ("unheard-of", &["x"], &[]),
        ];
        for (format, accepted, rejected) in cases {
            for text in *accepted {
                assert!(matches(format, text), "{format} accepts {text}");
            }
            for text in *rejected {
                assert!(!matches(format, text), "{format} rejects {text}");
            }
        }
    }
}
