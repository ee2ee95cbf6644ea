//! The HTTP client for registries: with a connection pool and timeouts, without automatic redirects and credentials.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use http_client::connect::secure;
use http_client::pool::{Lease, PooledBody};
use http_client::{Address, ConnectError, Stream, dial, handshake_http1};
use rustls::ClientConfig;
use tokio::time::timeout;

use super::proxy::{Proxies, Proxy, tunnel};

pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tls: bool,
    /// As in a URL: an IPv6 address has brackets.
    pub host: String,
    pub port: u16,
}

/// Why a text is not the URL of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("is not a URL")]
    Syntax,
    #[error("is neither http nor https")]
    Scheme,
    #[error("has no host")]
    Host,
    #[error("contains a user name, which belongs in credentials")]
    User,
}

impl Target {
    /// Parses a URL without its path.
    pub fn parse(url: &str) -> Result<Target, UrlError> {
        Target::with_path(url).map(|(target, _)| target)
    }

    /// The destination of a URL, and its path with its query.
    pub fn with_path(url: &str) -> Result<(Target, String), UrlError> {
        let uri: http::Uri = url.parse().map_err(|_| UrlError::Syntax)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlError::Scheme),
        };
        let authority = uri.authority().ok_or(UrlError::Host)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::User);
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok((Target { tls, host: authority.host().to_ascii_lowercase(), port }, path.to_owned()))
    }

    /// Host and port; without the port if it is the default.
    pub fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The same host over plain HTTP.
    pub fn plain(&self) -> Target {
        Target { tls: false, ..self.clone() }
    }

    /// For name resolution and certificates: an IPv6 address has no brackets.
    fn address(&self) -> Address {
        Address::new(self.tls, self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("{0}")]
    Connect(String),
    #[error("the server does not use TLS")]
    NotTls,
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Broken(String),
    #[error("no response for {0} seconds")]
    Timeout(u64),
}

impl HttpError {
    /// Whether a retry may help.
    pub(crate) fn is_transient(&self) -> bool {
        !matches!(self, HttpError::Tls(_) | HttpError::NotTls)
    }
}

/// Timeouts of requests to a registry.
#[derive(Debug, Clone)]
pub struct Timeouts {
    pub connect: Duration,
    /// For the head of a response, and between two chunks of its body.
    pub idle: Duration,
    /// The delay before a retry, doubled each time.
    pub retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(30), idle: Duration::from_secs(60), retry: Duration::from_millis(500) }
    }
}

/// The maximum number of idle connections, enough for the concurrent downloads.
const MAX_IDLE: usize = 8;

/// The connections of one client. Never shared between credentials.
pub(crate) struct Pool {
    connections: http_client::Pool<Body>,
    timeouts: Timeouts,
    proxies: Proxies,
}

/// A response whose body has not been read.
pub(crate) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: PooledBody<Body>,
    idle_timeout: Duration,
}

impl Pool {
    pub(crate) fn new(timeouts: Timeouts, proxies: Proxies) -> Pool {
        Pool { connections: http_client::Pool::new(MAX_IDLE), timeouts, proxies }
    }

    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    pub(crate) async fn send(
        &self,
        target: &Target,
        tls: &Arc<ClientConfig>,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Option<Body>,
    ) -> Result<Reply, HttpError> {
        let mut request = Request::new(body.unwrap_or_else(|| whole(Bytes::new())));
        *request.method_mut() = method;
        let proxy = self.proxies.of(target);
        // Without a tunnel, a proxy needs the absolute URL.
        let whole_path = proxy.filter(|_| !target.tls).map(|_| format!("{target}{path}"));
        let path = whole_path.as_deref().unwrap_or(path);
        *request.uri_mut() = path.parse().map_err(|_| HttpError::Broken(format!("invalid path {path:?}")))?;
        *request.headers_mut() = headers.clone();
        let host = HeaderValue::from_str(&target.authority()).map_err(|error| HttpError::Broken(error.to_string()))?;
        request.headers_mut().insert(HOST, host);
        request
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(concat!("tiphys/", env!("CARGO_PKG_VERSION"))));
        if let (false, Some(authorization)) = (target.tls, proxy.and_then(|proxy| proxy.authorization.as_ref())) {
            let value = HeaderValue::from_str(authorization).map_err(|error| HttpError::Broken(error.to_string()))?;
            request.headers_mut().insert(PROXY_AUTHORIZATION, value);
        }
        let connection = self.connection(target, tls).await?;
        let response = timeout(self.timeouts.idle, connection.send(request)).await;
        let response = response.map_err(|_| HttpError::Timeout(self.timeouts.idle.as_secs()))?;
        let (parts, body) = response.map_err(|error| HttpError::Broken(error.to_string()))?.into_parts();
        Ok(Reply { status: parts.status, headers: parts.headers, body, idle_timeout: self.timeouts.idle })
    }

    async fn connection(&self, target: &Target, tls: &Arc<ClientConfig>) -> Result<Lease<Body>, HttpError> {
        let address = target.address();
        while let Some(mut connection) = self.connections.take(&address) {
            if connection.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        let limit = self.timeouts.connect;
        let stream = timeout(limit, connect(target, tls, self.proxies.of(target))).await;
        let stream =
            stream.map_err(|_| HttpError::Connect(format!("no connection within {} seconds", limit.as_secs())));
        let sender = handshake_http1(stream??).await.map_err(|error| HttpError::Broken(error.to_string()))?;
        Ok(self.connections.add_http1(&address, sender))
    }
}

pub(crate) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

async fn connect(target: &Target, tls: &Arc<ClientConfig>, proxy: Option<&Proxy>) -> Result<Stream, HttpError> {
    let (address, first) = (target.address(), proxy.map_or(target, |proxy| &proxy.target).address());
    let mut stream = dial(&first.host, first.port).await.map_err(connect_error)?;
    if !target.tls {
        return Ok(Stream::Tcp(stream));
    }
    if let Some(proxy) = proxy {
        tunnel(&mut stream, proxy, target).await?;
    }
    secure(stream, &address.name, tls).await.map_err(connect_error)
}

fn connect_error(error: ConnectError) -> HttpError {
    match (error.rustls(), &error) {
        (Some(rustls::Error::InvalidMessage(_)), _) => HttpError::NotTls,
        (Some(error), _) => HttpError::Tls(error.to_string()),
        (None, ConnectError::Name { .. }) => HttpError::Tls(error.to_string()),
        (None, _) => HttpError::Connect(error.to_string()),
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next chunk of the body; None at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = timeout(self.idle_timeout, self.body.frame()).await;
            match frame.map_err(|_| HttpError::Timeout(self.idle_timeout.as_secs()))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(HttpError::Broken(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The whole body; None if it is longer than the limit.
    pub(crate) async fn bytes(mut self, most: u64) -> Result<Option<Vec<u8>>, HttpError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if (bytes.len() + chunk.len()) as u64 > most {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    /// Reads a short remaining body, so that the connection can be reused.
    pub(crate) async fn discard(self) {
        let _ = self.bytes(64 << 10).await;
    }
}
