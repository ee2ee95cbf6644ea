//! Image references, as far as the default pull policy needs them.

use api::Str;

/// Always for `:latest` and images without tag and digest; IfNotPresent also for invalid references.
pub(crate) fn default_pull_policy(image: &str) -> Str {
    Str::const_new(if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" })
}

/// The tag of a valid reference; `latest` if it has neither tag nor digest.
pub(super) fn tag(image: &str) -> Option<&str> {
    if is_identifier(image) {
        return None;
    }
    let (rest, digest) = split_digest(image);
    let (name, tag) = split_tag(rest);
    if !is_name(name) || digest.is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    match tag {
        Some(tag) if is_tag(tag) => Some(tag),
        Some(_) => None,
        None if digest.is_none() => Some("latest"),
        None => Some(""),
    }
}

/// 64 hexadecimal digits are an image id, not a reference.
fn is_identifier(image: &str) -> bool {
    image.len() == 64 && image.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn split_digest(image: &str) -> (&str, Option<&str>) {
    match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    }
}

/// The colon of a port precedes a slash; the colon of a tag follows the last slash.
fn split_tag(rest: &str) -> (&str, Option<&str>) {
    match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    }
}

fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((domain, path)) if looks_like_domain(domain) => {
            if !is_domain(domain) {
                return false;
            }
            path
        }
        _ => name,
    };
    name.len() <= 255 && path.split('/').all(is_component)
}

fn looks_like_domain(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost" || part.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let label = |label: &str| {
        let alnum = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        alnum(bytes.first()) && alnum(bytes.last()) && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    (bracketed || host.split('.').all(label))
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Lowercase letters and digits, separated by a dot, one or two underscores, or dashes.
fn is_component(component: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = |b: Option<&u8>| b.is_some_and(|b| alnum(*b));
    ends(bytes.first())
        && ends(bytes.last())
        && component.split(|c: char| c.is_ascii() && alnum(c as u8)).all(is_separator)
}

fn is_separator(text: &str) -> bool {
    matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-')
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = tag.as_bytes();
    tag.len() <= 128
        && bytes.first().is_some_and(|b| word(*b))
        && bytes.iter().all(|b| word(*b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'+' | b'.'))
        && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_determines_the_pull_policy() {
        let digest = format!("app@sha256:{}", "a".repeat(64));
        let cases = [
            ("app", "Always"),
            ("app:latest", "Always"),
            ("app:1", "IfNotPresent"),
            ("registry.example:5000/a/b", "Always"),
            ("registry.example:5000/a/b:2", "IfNotPresent"),
            (digest.as_str(), "IfNotPresent"),
            ("", "IfNotPresent"),
            (" lead", "IfNotPresent"),
            ("UPPER", "IfNotPresent"),
            ("a__b/c--d", "Always"),
            ("a..b", "IfNotPresent"),
        ];
        for (image, policy) in cases {
            assert_eq!(default_pull_policy(image), policy, "{image}");
        }
    }
}
