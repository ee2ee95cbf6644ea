//! Proxies of the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in upper or lower case.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http::{HttpError, Target};

const MAX_HEAD: usize = 16 << 10;

/// The proxies for registries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    except: Vec<String>,
}

/// An HTTP proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub target: Target,
    /// A `Proxy-Authorization`.
    pub authorization: Option<String>,
}

/// Why the proxies of the environment are ignored.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: {source}")]
pub struct ProxiesError {
    variable: String,
    source: ProxyError,
}

/// Why a proxy cannot be used.
#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error("{0}")]
    Address(String),
    #[error("a proxy over TLS is not supported")]
    Tls,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.target)
    }
}

impl Proxies {
    /// The proxies of the process's environment.
    pub fn from_environment() -> Proxies {
        let get = |name: &str| std::env::var(name).or_else(|_| std::env::var(name.to_ascii_lowercase())).ok();
        Proxies::read(get).unwrap_or_else(|why| {
            tracing::warn!(%why, "ignoring invalid proxies of the environment");
            Proxies::default()
        })
    }

    /// Reads the variables.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Proxies, ProxiesError> {
        let proxy = |name: &str| match get(name).filter(|text| !text.is_empty()) {
            Some(text) => parse(&text).map(Some).map_err(|source| ProxiesError { variable: name.to_owned(), source }),
            None => Ok(None),
        };
        let except = get("NO_PROXY").unwrap_or_default();
        let except = except.split(',').map(|one| one.trim().to_ascii_lowercase()).filter(|one| !one.is_empty());
        Ok(Proxies { http: proxy("HTTP_PROXY")?, https: proxy("HTTPS_PROXY")?, except: except.collect() })
    }

    /// The proxy for a destination; None for loopback and for exceptions.
    pub fn of(&self, target: &Target) -> Option<&Proxy> {
        let proxy = if target.tls { self.https.as_ref() } else { self.http.as_ref() };
        let direct = super::hosts::is_loopback(&target.host) || self.except.iter().any(|one| matches(one, target));
        proxy.filter(|_| !direct)
    }
}

fn parse(text: &str) -> Result<Proxy, ProxyError> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let (scheme, rest) = whole.split_once("://").unwrap_or(("http", text));
    let (user, address) = rest.rsplit_once('@').map_or((None, rest), |(user, address)| (Some(user), address));
    let target =
        Target::parse(&format!("{scheme}://{address}")).map_err(|error| ProxyError::Address(error.to_string()))?;
    if target.tls {
        return Err(ProxyError::Tls);
    }
    let authorization = user.map(|user| format!("Basic {}", STANDARD.encode(user)));
    Ok(Proxy { target, authorization })
}

/// A name matches itself and its subdomains, with a leading dot only subdomains. Addresses may be CIDRs.
fn matches(pattern: &str, target: &Target) -> bool {
    let host = target.host.trim_start_matches('[').trim_end_matches(']');
    let pattern = match pattern.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => {
            if port.parse() != Ok(target.port) {
                return false;
            }
            name
        }
        _ => pattern,
    };
    if let (Some((network, length)), Ok(address)) = (pattern.split_once('/'), host.parse::<IpAddr>()) {
        return in_network(network, length, address);
    }
    let below = pattern.trim_start_matches("*.").trim_start_matches('.');
    let only_below = below.len() < pattern.len();
    pattern == "*" || (host == below && !only_below) || host.strip_suffix(below).is_some_and(|rest| rest.ends_with('.'))
}

fn in_network(network: &str, length: &str, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let ((network, width), (address, other)) = (bits(network), bits(address));
    let mask = u128::MAX.checked_shl(128 - length.min(128)).unwrap_or(0);
    width == other && length <= width && network & mask == address & mask
}

/// Requests a tunnel from a proxy.
pub(crate) async fn tunnel(stream: &mut TcpStream, proxy: &Proxy, target: &Target) -> Result<(), HttpError> {
    let address = format!("{}:{}", target.host, target.port);
    let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n");
    if let Some(authorization) = &proxy.authorization {
        request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
    }
    request.push_str("\r\n");
    let failed = |error: std::io::Error| HttpError::Connect(format!("proxy {}: {error}", proxy.target));
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    // One byte at a time, because the bytes after the head belong to the tunnel.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > MAX_HEAD {
            return Err(HttpError::Connect(format!("proxy {}: the response header is too long", proxy.target)));
        }
        head.push(stream.read_u8().await.map_err(failed)?);
    }
    let text = String::from_utf8_lossy(&head);
    let first = text.lines().next().unwrap_or_default();
    match first.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(()),
        _ => Err(HttpError::Connect(format!("proxy {} responded {first:?}", proxy.target))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(http: &str, https: &str, except: &str) -> Result<Proxies, String> {
        let (http, https, except) = (http.to_owned(), https.to_owned(), except.to_owned());
        Proxies::read(move |name| match name {
            "HTTP_PROXY" => Some(http.clone()),
            "HTTPS_PROXY" => Some(https.clone()),
            _ => Some(except.clone()),
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn chooses_the_proxy() {
        let except = "intern.example, .below.example,10.0.0.0/8,host.example:5000,fd00::/8,*.star.example";
        let proxies = proxies("http://plain:3128", "user:pw@secure", except).unwrap();
        let cases = [
            ("https://r.example", Some("http://secure")),
            ("http://r.example", Some("http://plain:3128")),
            ("https://localhost:5000", None),
            ("http://127.0.0.1:5000", None),
            ("https://[::1]", None),
            ("https://intern.example", None),
            ("https://a.intern.example", None),
            ("https://notintern.example", Some("http://secure")),
            ("https://below.example", Some("http://secure")),
            ("https://a.below.example", None),
            ("https://a.star.example", None),
            ("https://10.1.2.3", None),
            ("https://11.1.2.3", Some("http://secure")),
            ("https://[fd00::1]", None),
            ("https://host.example:5000", None),
            ("https://host.example", Some("http://secure")),
        ];
        for (url, expected) in cases {
            let found = proxies.of(&Target::parse(url).unwrap()).map(|proxy| proxy.target.to_string());
            assert_eq!(found.as_deref(), expected, "{url}");
        }
        let secure = proxies.https.as_ref().unwrap();
        assert_eq!(secure.authorization.as_deref(), Some("Basic dXNlcjpwdw=="));
        assert!(!format!("{secure:?}").contains("pw"));
    }

    #[test]
    fn errors_name_the_variable() {
        assert!(proxies("ftp://x", "", "").unwrap_err().starts_with("HTTP_PROXY: "));
        assert!(proxies("", "https://x", "").unwrap_err().starts_with("HTTPS_PROXY: "));
        let none = proxies("", "", "*").unwrap();
        assert_eq!(none.of(&Target::parse("https://x.example").unwrap()), None);
    }
}
