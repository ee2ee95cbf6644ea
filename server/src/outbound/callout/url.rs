//! The parsed URL of a call.

use std::fmt;

/// Text that is not the URL of a server.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    #[error("{0:?} has no scheme")]
    NoScheme(String),
    #[error("the scheme {0:?} is not supported: use https or http")]
    Scheme(String),
    #[error("{0:?} has a fragment")]
    Fragment(String),
    #[error("a URL must not carry a user or a password")]
    Credentials,
    #[error("{0:?} names no host and port")]
    NoHost(String),
    #[error("{text:?}: {source}")]
    Path { text: String, source: http::uri::InvalidUri },
}

/// `https://host:8443/path?query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub tls: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// The path, as it was written.
    authority: String,
}

impl Url {
    /// Parses an absolute URL.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::NoScheme(text.to_string()))?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            other => return Err(UrlError::Scheme(other.to_string())),
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if path.contains('#') {
            return Err(UrlError::Fragment(text.to_string()));
        }
        if authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        let (host, port) = split_port(authority).ok_or_else(|| UrlError::NoHost(text.to_string()))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let url = Url {
            tls,
            host,
            port: port.unwrap_or(if tls { 443 } else { 80 }),
            path: format!("{slash}{path}"),
            authority: authority.to_string(),
        };
        url.path.parse::<http::Uri>().map_err(|source| UrlError::Path { text: text.to_string(), source })?;
        Ok(url)
    }

    /// Host and port as they were written, for the Host header.
    pub fn authority(&self) -> String {
        self.authority.clone()
    }

    /// The host in the form that precedes a port.
    pub(crate) fn host_name(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// Adds a pair to the query.
    pub(crate) fn with_query(mut self, key: &str, value: &str) -> Url {
        let joint = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{joint}{key}={value}", self.path);
        self
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

fn split_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            let port = if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) };
            (host, port)
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return None;
    }
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    Some((host.to_string(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_urls() {
        let cases = [
            ("https://a", Ok(("a", 443, "/"))),
            ("https://a:8443/x?y=1", Ok(("a", 8443, "/x?y=1"))),
            ("http://[::1]:80/x", Ok(("::1", 80, "/x"))),
            ("https://a?y=1", Ok(("a", 443, "/?y=1"))),
            ("a", Err("has no scheme")),
            ("ftp://a", Err("use https or http")),
            ("https://", Err("names no host")),
            ("https://a:b", Err("names no host and port")),
            ("https://u:p@a", Err("a user or a password")),
            ("https://a/#f", Err("fragment")),
            ("https://a/ b", Err("invalid")),
        ];
        for (text, want) in cases {
            match (Url::parse(text), want) {
                (Ok(url), Ok((host, port, path))) => {
                    assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path), "{text}");
                }
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{text}: {error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    #[test]
    fn adds_pairs_to_queries() {
        let with = |text: &str| Url::parse(text).expect("a URL").with_query("timeout", "2s").to_string();
        assert_eq!(with("https://127.0.0.1:1/x"), "https://127.0.0.1:1/x?timeout=2s");
        assert_eq!(with("https://a.b.svc:443/x?y"), "https://a.b.svc:443/x?y&timeout=2s");
    }
}
