//! Image references, with the rules of Docker.

use std::fmt;

use super::digest::Digest;
use super::error::{Error, Result};

/// The registry of names without one.
const DEFAULT_REGISTRY: &str = "docker.io";
const MAX_CHARACTERS: usize = 255;

/// A fully qualified reference: it has a registry, and either a tag or a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub registry: String,
    pub repository: String,
    pub version: Version,
}

/// The version of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    Tag(String),
    Digest(Digest),
}

/// Why a text is not a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    #[error("what follows @ is not a digest")]
    Digest,
    #[error("what follows the last colon is not a tag")]
    Tag,
    #[error("the part before the first slash is not a host with an optional port")]
    Registry,
    #[error("the name has more than 255 characters")]
    TooLong,
    #[error("64 hexadecimal digits would be ambiguous with an ID")]
    LikeId,
    #[error("the components must be lower-case letters and digits, separated by `.`, `_`, `__` or dashes")]
    Component,
}

impl Reference {
    /// Parses a reference. A tag next to a digest is only informational, and is dropped.
    pub fn parse(text: &str) -> Result<Reference> {
        read(text).map_err(|why| Error::Reference { text: text.to_owned(), why })
    }

    /// The registry and the repository.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The name with another digest.
    pub fn with_digest(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.name())
    }

    /// The tag, if the reference has one.
    pub fn tag(&self) -> Option<&str> {
        match &self.version {
            Version::Tag(tag) => Some(tag),
            Version::Digest(_) => None,
        }
    }

    /// The digest, if the reference has one.
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Tag(_) => None,
            Version::Digest(digest) => Some(digest),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(f, "{}:{tag}", self.name()),
            Version::Digest(digest) => write!(f, "{}@{digest}", self.name()),
        }
    }
}

fn read(text: &str) -> Result<Reference, InvalidReference> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(Digest::parse(digest).map_err(|_| InvalidReference::Digest)?)),
        None => (text, None),
    };
    let (name, tag) = split_tag(rest);
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(InvalidReference::Tag);
    }
    let (registry, repository) = split_registry(name);
    if !is_registry(&registry) {
        return Err(InvalidReference::Registry);
    }
    check_repository(&repository)?;
    if registry.len() + 1 + repository.len() > MAX_CHARACTERS {
        return Err(InvalidReference::TooLong);
    }
    let version = match (digest, tag) {
        (Some(digest), _) => Version::Digest(digest),
        (None, tag) => Version::Tag(tag.unwrap_or("latest").to_owned()),
    };
    Ok(Reference { registry, repository, version })
}

/// A colon after the last slash starts the tag; one before it, a port.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    }
}

fn split_registry(name: &str) -> (String, String) {
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if looks_like_host(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, name),
    };
    let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
    let official = registry == DEFAULT_REGISTRY && !repository.contains('/');
    let repository = if official { format!("library/{repository}") } else { repository.to_owned() };
    (registry.to_owned(), repository)
}

fn looks_like_host(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok() && (port.is_empty() || is_port(port.strip_prefix(':')));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(label) && (port.is_none() || is_port(port))
}

fn is_port(port: Option<&str>) -> bool {
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

fn check_repository(repository: &str) -> Result<(), InvalidReference> {
    if repository.trim_start_matches("library/").len() == 64
        && repository.trim_start_matches("library/").bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Err(InvalidReference::LikeId);
    }
    match repository.split('/').all(is_component) {
        true => Ok(()),
        false => Err(InvalidReference::Component),
    }
}

fn is_component(text: &str) -> bool {
    let inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    inner(*first) && inner(*last) && text.split(|c: char| c.is_ascii() && inner(c as u8)).all(is_separator)
}

fn is_separator(text: &str) -> bool {
    matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-')
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_references() {
        let digest = Digest::of(b"x");
        let cases: &[(&str, &str)] = &[
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("grafana/grafana", "docker.io/grafana/grafana:latest"),
            ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a/b:x", "localhost:5000/a/b:x"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("registry.example.com/a__b/c-d---e.f_g:V1.0-rc_1", "registry.example.com/a__b/c-d---e.f_g:V1.0-rc_1"),
            (&format!("nginx@{digest}"), &format!("docker.io/library/nginx@{digest}")),
            (&format!("nginx:1.25@{digest}"), &format!("docker.io/library/nginx@{digest}")),
        ];
        for (text, expected) in cases {
            assert_eq!(Reference::parse(text).unwrap().to_string(), *expected, "{text}");
        }
    }

    #[test]
    fn refuses_invalid_references() {
        let long = "a".repeat(256);
        let id = "a".repeat(64);
        let cases = [
            "",
            "/a",
            "a/",
            "a//b",
            "A",
            "a:",
            "a:-x",
            "a@sha256:1",
            "a b",
            "a/../b",
            "-a",
            "a-",
            "a___b",
            "a..b",
            "host.:80/a",
            "host:port/a",
            "host:99999/a",
            "[::1/a",
            "[x]:1/a",
            "ü",
            &long,
            &id,
        ];
        for text in cases {
            assert!(Reference::parse(text).is_err(), "{text:?}");
        }
    }
}
