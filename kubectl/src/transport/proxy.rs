//! HTTP, HTTPS and SOCKS5 proxies, from the kubeconfig or the environment.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_client::{Stream, tls};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::{Result, message};
use crate::kubeconfig::ServerUrl;

/// The longest response of a proxy to CONNECT.
const MAX_HEAD: usize = 16 * 1024;

/// Why there is no connection through a proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("proxyconnect tcp {host}:{port}: {reason}")]
    Connect { host: String, port: u16, reason: String },
    #[error("{0}")]
    Write(#[source] std::io::Error),
    #[error("the proxy closed the connection: {0}")]
    Closed(#[source] std::io::Error),
    #[error("the response of the proxy is too long")]
    TooLong,
    /// The text of its status.
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Protocol {
    Http,
    /// HTTP over TLS to the proxy itself.
    Https,
    Socks5,
}

/// A proxy between the client and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    protocol: Protocol,
    host: String,
    port: u16,
    user: Option<(String, String)>,
}

impl Proxy {
    /// The proxy of the kubeconfig, or of the environment unless that excludes the server.
    pub(super) fn for_server(configured: &str, server: &ServerUrl) -> Result<Option<Proxy>> {
        if !configured.is_empty() {
            return Proxy::parse(configured).map(Some);
        }
        let variables = if server.is_tls { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
        let Some(url) = first_variable(&variables) else { return Ok(None) };
        let excluded = first_variable(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
        if is_excluded(&excluded, &server.host, server.port) { Ok(None) } else { Proxy::parse(&url).map(Some) }
    }

    fn parse(url: &str) -> Result<Proxy> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (protocol, port) = match scheme {
            "http" => (Protocol::Http, 80),
            "socks5" | "socks5h" => (Protocol::Socks5, 1080),
            "https" => (Protocol::Https, 443),
            _ => return message(format!("unsupported scheme \"{scheme}\", must be http, https, or socks5")),
        };
        let rest = rest.split('/').next().unwrap_or_default();
        let (user, authority) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decode = |text| api::query::percent_decode(text).into_owned();
            (decode(name), decode(password))
        });
        let parsed = ServerUrl::parse(&format!("http://{authority}"))?;
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Proxy { protocol, host: parsed.host, port: if has_port { parsed.port } else { port }, user })
    }

    /// Whether plain HTTP requests name the server in their first line.
    pub(super) fn needs_absolute_uri(&self) -> bool {
        self.protocol != Protocol::Socks5
    }

    /// Whether the connection to the proxy itself uses TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.protocol == Protocol::Https
    }

    /// A connection to the server, or to the proxy for plain HTTP. The certificate of an HTTPS proxy is verified as that
    /// of the server is.
    pub(super) async fn connect(
        &self,
        server: &ServerUrl,
        tls: &Arc<ClientConfig>,
    ) -> std::result::Result<Stream, ProxyError> {
        let failed = |error: &dyn std::fmt::Display| ProxyError::Connect {
            host: self.host.clone(),
            port: self.port,
            reason: error.to_string(),
        };
        let stream = http_client::dial(&self.host, self.port).await.map_err(|error| failed(&error))?;
        let mut stream = if self.is_tls() {
            let tls = Arc::new(tls::with_alpn(tls, &[tls::HTTP1]));
            let secured = http_client::connect::secure(stream, &self.host, &tls).await;
            secured.map_err(|error| match error.rustls() {
                Some(reason) => failed(&super::dial::tls_text(reason, &self.host)),
                None => failed(&error),
            })?
        } else {
            Stream::Tcp(stream)
        };
        match self.protocol {
            Protocol::Http | Protocol::Https if server.is_tls => self.http_tunnel(&mut stream, server).await?,
            Protocol::Http | Protocol::Https => {}
            Protocol::Socks5 => self.socks_tunnel(&mut stream, server).await.map_err(|error| failed(&error))?,
        }
        Ok(stream)
    }

    async fn http_tunnel(&self, stream: &mut Stream, server: &ServerUrl) -> std::result::Result<(), ProxyError> {
        let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
        let mut head = format!("CONNECT {host}:{0} HTTP/1.1\r\nHost: {host}:{0}\r\n", server.port);
        if let Some((name, password)) = &self.user {
            head.push_str(&format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(format!("{name}:{password}"))));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.map_err(ProxyError::Write)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let byte = stream.read_u8().await.map_err(ProxyError::Closed)?;
            answer.push(byte);
            if answer.len() > MAX_HEAD {
                return Err(ProxyError::TooLong);
            }
        }
        let text = String::from_utf8_lossy(&answer);
        let status = text.lines().next().and_then(|line| line.split_once(' ')).map_or("", |(_, status)| status);
        if status.starts_with("200") {
            Ok(())
        } else {
            Err(ProxyError::Refused(status.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').to_string()))
        }
    }

    async fn socks_tunnel(&self, stream: &mut Stream, server: &ServerUrl) -> std::io::Result<()> {
        let refused = |text: &str| std::io::Error::other(format!("socks connect: {text}"));
        let methods: &[u8] = if self.user.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
        stream.write_all(methods).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        match (chosen, &self.user) {
            ([5, 0], _) => {}
            ([5, 2], Some((name, password))) => {
                let length = |text: &str| u8::try_from(text.len()).map_err(|_| refused("the user name is too long"));
                let mut login = vec![1, length(name)?];
                login.extend_from_slice(name.as_bytes());
                login.push(length(password)?);
                login.extend_from_slice(password.as_bytes());
                stream.write_all(&login).await?;
                let mut verdict = [0; 2];
                stream.read_exact(&mut verdict).await?;
                if verdict[1] != 0 {
                    return Err(refused("username/password authentication failed"));
                }
            }
            _ => return Err(refused("no acceptable authentication methods")),
        }
        stream.write_all(&socks_request(server).ok_or_else(|| refused("the host name is too long"))?).await?;
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        if head[1] != 0 {
            return Err(refused(&format!("the proxy refused the connection with code {}", head[1])));
        }
        let rest = match head[3] {
            1 => 4,
            4 => 16,
            _ => usize::from(stream.read_u8().await?),
        };
        let mut bound = vec![0; rest + 2];
        stream.read_exact(&mut bound).await.map(drop)
    }
}

fn socks_request(server: &ServerUrl) -> Option<Vec<u8>> {
    let mut request = vec![5, 1, 0];
    match server.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend_from_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend_from_slice(&address.octets());
        }
        Err(_) => {
            request.extend_from_slice(&[3, u8::try_from(server.host.len()).ok()?]);
            request.extend_from_slice(server.host.as_bytes());
        }
    }
    request.extend_from_slice(&server.port.to_be_bytes());
    Some(request)
}

fn first_variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// Go's rules for NO_PROXY: names with their subdomains, addresses, networks, `*`. Local hosts never use a proxy.
fn is_excluded(list: &str, host: &str, port: u16) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).any(|item| {
        if item == "*" {
            return true;
        }
        if let (Some(address), Some((network, bits))) = (address, item.split_once('/')) {
            return in_network(address, network, bits);
        }
        let (name, of_port) = match item.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') => (name, digits.parse::<u16>().ok()),
            _ => (item, None),
        };
        if of_port.is_some_and(|wanted| wanted != port) {
            return false;
        }
        let suffix = name.trim_start_matches('*');
        let suffix = if suffix.starts_with('.') { suffix.to_string() } else { format!(".{suffix}") };
        host.eq_ignore_ascii_case(name) || host.to_ascii_lowercase().ends_with(&suffix.to_ascii_lowercase())
    })
}

fn in_network(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) if bits <= 32 => {
            (a.to_bits() ^ b.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if bits <= 128 => {
            (a.to_bits() ^ b.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusions_follow_go() {
        let check =
            |list: &str, host: &str, want: bool| assert_eq!(is_excluded(list, host, 443), want, "{list} {host}");
        check("", "localhost", true);
        check("", "127.0.0.2", true);
        check("", "a.example", false);
        check("example", "a.example", true);
        check(".example", "example", false);
        check("a.example:80", "a.example", false);
        check("10.0.0.0/8", "10.1.2.3", true);
        check("10.0.0.0/8", "11.1.2.3", false);
        check("*", "x", true);
    }

    #[test]
    fn parses_proxies() {
        let proxy = Proxy::parse("socks5://u:p%40@h").expect("a proxy");
        let want =
            Proxy { protocol: Protocol::Socks5, host: "h".into(), port: 1080, user: Some(("u".into(), "p@".into())) };
        assert_eq!(proxy, want);
        assert!(Proxy::parse("ftp://h").is_err());
        let secure = Proxy::parse("https://h").expect("a proxy");
        assert!(secure.is_tls() && secure.needs_absolute_uri() && secure.port == 443);
        assert_eq!(Proxy::parse("http://h:80").map(|proxy| proxy.port).ok(), Some(80));
    }
}
