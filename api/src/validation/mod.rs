//! Formats of names, labels, keys and addresses. Each function returns upstream's messages, empty for a valid value;
//! the caller adds the field path.

pub mod ip;

pub use ip::{
    cidr, cidr_legacy, cidr_warnings, interface_address, ip, ip_legacy, ip_warning, ipv4, ipv6, parse_cidr, parse_ip,
};

/// The messages about a value.
pub type Messages = Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const NAME_PART: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_PART_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const NAME_PART_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];

pub(crate) const LABEL_MAX: usize = 63;
pub(crate) const SUBDOMAIN_MAX: usize = 253;

/// A lowercase DNS label (RFC 1123): `my-name`.
pub fn dns1123_label(value: &str) -> Messages {
    let mut messages = too_long(value, LABEL_MAX);
    if !is_dns_label(value) {
        messages.push(if is_subdomain(value) {
            "must not contain dots".to_string()
        } else {
            regex(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    messages
}

/// DNS labels separated by dots: `example.com`.
pub fn dns1123_subdomain(value: &str) -> Messages {
    let mut messages = too_long(value, SUBDOMAIN_MAX);
    messages.extend(subdomain_form(value));
    messages
}

fn subdomain_form(value: &str) -> Option<String> {
    (!is_subdomain(value)).then(|| {
        regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        )
    })
}

/// A subdomain whose labels may contain underscores.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Messages {
    let mut messages = too_long(value, SUBDOMAIN_MAX);
    let label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_framed(label, is_lower_alphanumeric, |byte| matches!(byte, b'-' | b'_'))
    };
    if !value.split('.').all(label) {
        messages.push(regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    messages
}

/// A label that starts with a letter (RFC 1035), as service names.
pub fn dns1035_label(value: &str) -> Messages {
    let mut messages = too_long(value, LABEL_MAX);
    if !is_dns_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        messages.push(regex(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    messages
}

/// `*.example.com`
pub fn wildcard_dns1123_subdomain(value: &str) -> Messages {
    let mut messages = too_long(value, SUBDOMAIN_MAX);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        messages.push(regex(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    messages
}

/// A label key, or another name with an optional domain: `example.com/MyName`.
pub fn qualified_name(value: &str) -> Messages {
    let mut messages = Messages::new();
    let (prefix, name) = match value.split_once('/') {
        None => (None, value),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            let rule = regex(NAME_PART_RULE, NAME_PART, NAME_PART_EXAMPLES);
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {rule} {prefix}")];
        }
    };
    match prefix {
        None => {}
        Some("") => messages.push("prefix part must be non-empty".to_string()),
        Some(prefix) => {
            let complaints = too_many_bytes(prefix, SUBDOMAIN_MAX).into_iter().chain(subdomain_form(prefix));
            messages.extend(complaints.map(|message| format!("prefix part {message}")));
        }
    }
    if name.is_empty() {
        messages.push("name part must be non-empty".to_string());
    }
    messages.extend(too_many_bytes(name, LABEL_MAX).map(|message| format!("name part {message}")));
    if !is_name_part(name) {
        messages.push(format!("name part {}", regex(NAME_PART_RULE, NAME_PART, NAME_PART_EXAMPLES)));
    }
    messages
}

/// Validates the value of a label.
pub fn label_value(value: &str) -> Messages {
    let mut messages: Messages = too_many_bytes(value, LABEL_MAX).into_iter().collect();
    if !value.is_empty() && !is_name_part(value) {
        messages.push(regex(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({NAME_PART})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    messages
}

/// `acme.io/foo`; each message has the value it is about.
pub fn domain_prefixed_path(value: &str) -> Vec<(String, String)> {
    let Some((host, path)) = value.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) else {
        return vec![(value.to_string(), "must be a domain-prefixed path (such as \"acme.io/foo\")".to_string())];
    };
    let mut complaints: Vec<_> = dns1123_subdomain(host).into_iter().map(|m| (host.to_string(), m)).collect();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(good) {
        complaints.push((path.to_string(), regex("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[])));
    }
    complaints
}

/// A domain of at least three segments; no message for an empty name.
pub fn fully_qualified_name(value: &str) -> Messages {
    let messages = dns1123_subdomain(value);
    if !messages.is_empty() {
        return vec![messages.join(",")];
    }
    match value.split('.').count() {
        0..3 => vec!["should be a domain with at least three segments separated by dots".to_string()],
        _ => Messages::new(),
    }
}

/// Validates a C identifier.
pub fn c_identifier(value: &str) -> Messages {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    match value.as_bytes() {
        [first, rest @ ..] if letter(*first) && rest.iter().all(|b| letter(*b) || b.is_ascii_digit()) => {
            Messages::new()
        }
        _ => vec![regex(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            &["my_name", "MY_NAME", "MyName"],
        )],
    }
}

/// Environment variable names: printable ASCII without `=`.
pub fn env_var_name(value: &str) -> Messages {
    let mut messages = Messages::new();
    if value.is_empty() {
        messages.push("environment variable name must be non-empty".to_string());
    }
    if !value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
        let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        messages.push(rule.to_string());
    }
    messages
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Messages {
    let mut messages = too_long(value, SUBDOMAIN_MAX);
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if value.is_empty() || !value.bytes().all(good) {
        messages.push(regex(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    messages.extend(parent_directory(value));
    messages
}

fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." | ".." => Some(format!("must not be '{value}'")),
        _ => value.starts_with("..").then(|| "must not start with '..'".to_string()),
    }
}

/// `http`, `metrics-2` (RFC 6335).
pub fn port_name(value: &str) -> Messages {
    let mut messages = too_long(value, 15);
    if value.is_empty() || !value.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-') {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_string());
    }
    if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_string());
    }
    if value.contains("--") {
        messages.push("must not contain consecutive hyphens".to_string());
    }
    if value.starts_with('-') || value.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_string());
    }
    messages
}

/// Validates a port number.
pub fn port_number(port: i64) -> Messages {
    in_range(port, 1, 65_535)
}

/// Validates a numeric user id.
pub fn user_id(id: i64) -> Messages {
    in_range(id, 0, u32::MAX.into())
}

/// Validates a numeric group id.
pub fn group_id(id: i64) -> Messages {
    in_range(id, 0, u32::MAX.into())
}

/// Validates a number between two inclusive limits.
pub fn in_range(value: i64, low: i64, high: i64) -> Messages {
    if (low..=high).contains(&value) {
        return Messages::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// `25%`
pub fn percent(value: &str) -> Messages {
    match value.strip_suffix('%') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => Messages::new(),
        _ => vec![regex(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )],
    }
}

/// Validates the name of an HTTP header.
pub fn http_header_name(value: &str) -> Messages {
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Messages::new();
    }
    vec![regex(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// A name that is valid in a URL path.
pub fn path_segment_name(value: &str) -> Messages {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

/// The prefix of such a name (`generateName`).
pub fn path_segment_prefix(value: &str) -> Messages {
    let found = ['/', '%'].into_iter().filter(|c| value.contains(*c));
    found.map(|c| format!("may not contain '{c}'")).collect()
}

/// `must be no more than 63 characters`, in upstream's wording.
pub fn too_long(value: &str, max: usize) -> Messages {
    if value.len() > max { vec![format!("must be no more than {max} characters")] } else { Messages::new() }
}

fn too_many_bytes(value: &str, max: usize) -> Option<String> {
    (value.len() > max).then(|| format!("must be no more than {max} bytes"))
}

/// A message about a format: the rule, examples, the expression.
pub fn regex(rule: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{expression}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Valid characters throughout, with an `end` character first and last.
fn is_framed(value: &str, end: fn(u8) -> bool, other: fn(u8) -> bool) -> bool {
    match value.as_bytes() {
        [] => false,
        bytes @ [.., last] => end(bytes[0]) && end(*last) && bytes.iter().all(|byte| end(*byte) || other(*byte)),
    }
}

fn is_dns_label(value: &str) -> bool {
    is_framed(value, is_lower_alphanumeric, |byte| byte == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

fn is_name_part(value: &str) -> bool {
    is_framed(value, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn(&str) -> Messages, good: &[&str], bad: &[(&str, &[&str])]) {
        for value in good {
            assert_eq!(rule(value), Messages::new(), "{value:?}");
        }
        for (value, starts) in bad {
            let messages = rule(value);
            assert_eq!(messages.len(), starts.len(), "{value:?}: {messages:?}");
            for (message, start) in messages.iter().zip(*starts) {
                assert!(message.starts_with(start), "{value:?}: {message}");
            }
        }
    }

    #[test]
    fn dns_names() {
        let long = "a".repeat(64);
        check(
            dns1123_label,
            &["a", "0", "a-b", "123-abc"],
            &[
                ("", &["a lowercase RFC 1123 label"]),
                ("a.b", &["must not contain dots"]),
                ("-a", &["a lowercase"]),
                ("a_b", &["a lowercase"]),
                (&long, &["must be no more than 63 characters"]),
            ],
        );
        check(dns1123_subdomain, &["a.b", "a"], &[("A", &["a lowercase RFC 1123 subdomain"]), ("a..b", &["a l"])]);
        check(dns1035_label, &["a", "a-1"], &[("1a", &["a DNS-1035 label"]), ("", &["a DNS-1035"])]);
        check(wildcard_dns1123_subdomain, &["*.a.b"], &[("*", &["a wildcard"]), ("*.*.a", &["a wildcard"])]);
        check(dns1123_subdomain_with_underscore, &["_a.b_c"], &[("__a", &["a lowercase"]), ("a_", &["a l"])]);
        let message = dns1123_label("A").remove(0);
        assert!(message.ends_with(
            "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ));
    }

    #[test]
    fn labels() {
        let long = "x".repeat(64);
        check(
            qualified_name,
            &["a", "A.b_c-D", "example.com/a"],
            &[
                ("", &["name part must be non-empty", "name part must consist of"]),
                ("/x", &["prefix part must be non-empty"]),
                ("a/b/c", &["a valid label key must consist of"]),
                ("A/b", &["prefix part a lowercase RFC 1123 subdomain"]),
                (&long, &["name part must be no more than 63 bytes"]),
            ],
        );
        check(
            label_value,
            &["", "a", "1.2"],
            &[("é", &["a valid label must be an empty string"]), ("-", &["a valid"])],
        );
    }

    #[test]
    fn keys_and_ports() {
        check(
            config_map_key,
            &["a", ".a", "A_b-c.d"],
            &[("..a", &["must not start with '..'"]), (".", &["must not be '.'"]), ("", &["a valid config key"])],
        );
        check(
            env_var_name,
            &["A", "a b", "1.x"],
            &[("a=b", &["a valid environment"]), ("", &["environment variable"])],
        );
        check(c_identifier, &["_a1"], &[("1a", &["a valid C identifier"])]);
        check(percent, &["5%"], &[("%", &["a valid percent"]), ("5", &["a valid percent"])]);
        check(http_header_name, &["X-A"], &[("a b", &["a valid HTTP header"])]);
        check(path_segment_name, &["a"], &[("..", &["may not be '..'"]), ("a/%", &["may not c", "may not c"])]);
        check(
            port_name,
            &["http", "a-1"],
            &[("1", &["must contain at least one letter"]), ("A", &["must contain only", "must contain at least"])],
        );
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
    }
}
