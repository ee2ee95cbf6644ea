//! The target of an HTTP request: URLs are parsed as browsers do, and redirects are resolved against them. Pure.

use api::query::encode_path;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What is escaped in a query that a user has written.
const QUERY: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`').add(b'{').add(b'}').add(b'|').add(b'\\').add(b'^');

/// An address of HTTP, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpTarget {
    pub(crate) scheme: String,
    /// Host and port, as they are written.
    pub(crate) authority: String,
    /// Path and query, escaped.
    pub(crate) path: String,
}

impl HttpTarget {
    /// `path` is written by a user, and may be no valid path.
    pub(crate) fn new(scheme: &str, authority: String, path: &str) -> HttpTarget {
        HttpTarget { scheme: scheme.to_string(), authority, path: absolute(escaped(path)) }
    }

    /// The target of a redirect from here.
    pub(crate) fn follow(&self, location: &str) -> HttpTarget {
        if let Some((scheme, rest)) = location.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
            return HttpTarget::at(&scheme.to_ascii_lowercase(), rest);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return HttpTarget::at(&self.scheme, rest);
        }
        let target = escaped(location);
        let (path, query) = split(&target);
        let (own, _) = split(&self.path);
        let path = match path {
            "" if query.is_empty() => self.path.clone(),
            "" => format!("{own}{query}"),
            path if path.starts_with('/') => format!("{}{query}", without_dots(path)),
            path => {
                format!("{}{query}", without_dots(&format!("{}/{path}", own.rsplit_once('/').map_or("", |own| own.0))))
            }
        };
        HttpTarget { path, ..self.clone() }
    }

    fn at(scheme: &str, rest: &str) -> HttpTarget {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        HttpTarget::new(scheme, authority.to_string(), path)
    }

    /// Without the port, which may differ.
    pub(crate) fn host(&self) -> &str {
        let authority = self.authority.as_str();
        match authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((host, _)) => host,
            None => authority.split(':').next().unwrap_or_default(),
        }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        let after = self.authority.rsplit_once(']').map_or(self.authority.as_str(), |(_, after)| after);
        match after.rsplit_once(':') {
            Some((_, "")) | None => Some(if self.scheme == "https" { 443 } else { 80 }),
            Some((_, port)) => port.parse().ok(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.path)
    }
}

/// Whether a redirect has a full URL.
pub(crate) fn is_full(location: &str) -> bool {
    location.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn is_scheme(text: &str) -> bool {
    let rest = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && text.chars().all(rest)
}

fn absolute(path: String) -> String {
    if path.starts_with('/') { path } else { format!("/{path}") }
}

/// The path, and the query with its mark.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.find('?').unwrap_or(path.len()))
}

/// A path as it is sent: a valid one is unchanged, any other is escaped. The fragment is not sent.
fn escaped(path: &str) -> String {
    let sent = path.split('#').next().unwrap_or_default();
    let (path, query) = split(sent);
    let Some(plain) = unescaped(path) else {
        // Invalid percent signs are escaped like any other character.
        return encode_path(sent.as_bytes());
    };
    let is_fine = |byte: u8| is_plain(byte) || b"!'()*[]%".contains(&byte);
    let path = match path.bytes().all(is_fine) {
        true => path.to_string(),
        false => encode_path(&plain),
    };
    path + &utf8_percent_encode(query, QUERY).to_string()
}

/// Bytes that need no escape in a path.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

/// None if a percent sign is not followed by two digits.
fn unescaped(path: &str) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match byte {
            b'%' => plain.push(u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?),
            byte => plain.push(byte),
        }
    }
    Some(plain)
}

/// `/a/./b/../c` is `/a/c`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for part in &parts {
        match *part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    if matches!(parts.last(), Some(&("." | ".."))) {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_paths_only_where_needed() {
        let cases = [
            ("healthz", "/healthz"),
            ("/a?b=c&d=%20#e", "/a?b=c&d=%20"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a(b)*", "/a(b)*"),
            ("/a b", "/a%20b"),
            ("/a%2Fb c", "/a/b%20c"),
            ("/{x}/\"y\"", "/%7Bx%7D/%22y%22"),
            ("/grüße", "/gr%C3%BC%C3%9Fe"),
            ("/100%?x", "/100%25%3Fx"),
            ("/a?b=c d{", "/a?b=c%20d%7B"),
            ("", "/"),
        ];
        for (path, want) in cases {
            let place = HttpTarget::new("http", "10.0.0.1:80".to_string(), path);
            assert_eq!(place.path, want, "{path}");
            assert!(place.url().parse::<http::Uri>().is_ok(), "{path}");
        }
    }

    #[test]
    fn resolves_redirects() {
        let from = HttpTarget::new("http", "10.0.0.1:8080".to_string(), "/a/b?c");
        let cases = [
            ("login", "http://10.0.0.1:8080/a/login"),
            ("../login?x y", "http://10.0.0.1:8080/login?x%20y"),
            ("./", "http://10.0.0.1:8080/a/"),
            ("/x/../y", "http://10.0.0.1:8080/y"),
            ("?d", "http://10.0.0.1:8080/a/b?d"),
            ("", "http://10.0.0.1:8080/a/b?c"),
            ("//other/x", "http://other/x"),
            ("HTTPS://10.0.0.1:8443", "https://10.0.0.1:8443/"),
            ("http://user@10.0.0.1?x", "http://10.0.0.1/?x"),
        ];
        for (location, want) in cases {
            assert_eq!(from.follow(location).url(), want, "{location}");
        }
        let place = |url: &str| from.follow(url);
        assert_eq!((place("https://[::1]:8443/").host(), place("https://[::1]:8443/").port()), ("::1", Some(8443)));
        assert_eq!((place("https://[::1]/").port(), place("http://h:/").port()), (Some(443), Some(80)));
        assert_eq!((place("http://h:x/").host(), place("http://h:x/").port()), ("h", None));
        assert!(is_full("http://a") && !is_full("//a") && !is_full("/a:b") && !is_full("a/b:c"));
    }
}
