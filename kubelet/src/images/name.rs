//! Checks image names without a request to a registry: `HOST:PORT/PATH:TAG@DIGEST`.

const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// An invalid name, in the words of upstream's parser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Id(String),
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    #[error("invalid reference format")]
    Malformed,
    #[error("repository name must not be more than {LONGEST_NAME} characters")]
    TooLong,
}

/// Checks the name of an image.
pub(crate) fn check(name: &str) -> Result<(), NameError> {
    let is_id = name.len() == 64 && name.chars().all(|c| matches!(c, 'a'..='f' | '0'..='9'));
    if is_id {
        return Err(NameError::Id(name.to_string()));
    }
    let (domain, rest) = split_domain(name);
    let path = rest.split([':', '@']).next().unwrap_or_default();
    let shown = if domain == HUB && !rest.contains('/') { format!("library/{path}") } else { path.to_string() };
    if path.chars().any(char::is_uppercase) {
        return Err(NameError::Uppercase(shown));
    }
    let (rest, digest) = rest.split_once('@').map_or((rest, None), |(rest, digest)| (rest, Some(digest)));
    let (path, tag) = rest.split_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
    let is_good = is_domain(domain)
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    match is_good {
        false => Err(NameError::Malformed),
        true if domain.len() + shown.len() >= LONGEST_NAME => Err(NameError::TooLong),
        true => Ok(()),
    }
}

const HUB: &str = "docker.io";

/// The part before the first slash is a host only if it looks like one.
fn split_domain(name: &str) -> (&str, &str) {
    let is_host =
        |first: &str| first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase);
    match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (first, rest),
        _ => (HUB, name),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let is_label = |label: &str| {
        let ends = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && !ends && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    is_host && port.is_none_or(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()))
}

/// Small letters and digits, with single separators between them: a dot, up to two underscores, any number of dashes.
fn is_component(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = part.split(is_word).filter(|between| !between.is_empty());
    let is_separator = |between: &str| matches!(between, "." | "_" | "__") || between.chars().all(|c| c == '-');
    part.starts_with(is_word) && part.ends_with(is_word) && separators.into_iter().all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= LONGEST_TAG && tag.starts_with(is_word) && tag.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let is_algorithm = algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && algorithm.chars().all(|c| c.is_ascii_alphanumeric() || "+._-".contains(c));
    is_algorithm && hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_image_names() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for name in
            ["a", "a:1", "a/b", "x.example/a/b-c__d.e:T_1", "localhost/a", "h:5000/a", "[::1]:5/a", &digest, "Host/a"]
        {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", ":1", "a:", "a//b", "a:b:c", "-a", "a___b", "a@sha256:1", "h:x/a", "a b", "x.example/"] {
            assert_eq!(check(name), Err(NameError::Malformed), "{name:?}");
        }
        assert_eq!(check("A:1"), Err(NameError::Uppercase("library/A".to_string())));
        let upper = check("h:1/A").expect_err("upper case").to_string();
        assert_eq!(upper, "invalid reference format: repository name (A) must be lowercase");
        assert!(check(&"0".repeat(64)).is_err_and(|why| why.to_string().contains("64-byte hexadecimal")));
        assert!(check(&"a/".repeat(200)).is_err());
    }
}
