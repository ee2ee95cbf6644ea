//! HTTP as a registry's client needs it: connections that are kept for the next request, deadlines, no redirects
//! and no credentials of its own accord.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stdx::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::proxy::{Proxies, Proxy, tunnel};

pub type Body = BoxBody<Bytes, std::io::Error>;

/// Where a connection goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tls: bool,
    /// As in an address: a v6 address has its brackets.
    pub host: String,
    pub port: u16,
}

impl Target {
    pub fn parse(url: &str) -> Result<Target, &'static str> {
        Target::with_path(url).map(|(target, _)| target)
    }

    /// The address's target, and its path with its query.
    pub fn with_path(url: &str) -> Result<(Target, String), &'static str> {
        let uri: http::Uri = url.parse().map_err(|_| "is not an address")?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("is neither http nor https"),
        };
        let authority = uri.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("holds a user's name, which belongs into credentials");
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok((Target { tls, host: authority.host().to_ascii_lowercase(), port }, path.to_owned()))
    }

    /// Host and port, the port only where it is not the usual one.
    pub fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    pub fn plain(&self) -> Target {
        Target { tls: false, ..self.clone() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{0}")]
    Connect(String),
    #[error("it does not speak TLS")]
    NotTls,
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Broken(String),
    #[error("no answer for {0} seconds")]
    Silent(u64),
}

impl HttpError {
    /// Whether asking again may help.
    pub fn is_passing(&self) -> bool {
        !matches!(self, HttpError::Tls(_) | HttpError::NotTls)
    }
}

/// How long a registry may take.
#[derive(Debug, Clone)]
pub struct Timeouts {
    pub connect: Duration,
    /// For the head of an answer, and between two pieces of its body.
    pub silence: Duration,
    /// Before a request is tried again; twice as long each time.
    pub retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            retry: Duration::from_millis(500),
        }
    }
}

/// Idle connections; as many are kept as downloads run at once.
const MOST_IDLE: usize = 8;

type Idle = Arc<Mutex<Vec<(Target, SendRequest<Body>)>>>;

/// The connections of one client. Never shared between credentials.
pub struct Pool {
    idle: Idle,
    timeouts: Timeouts,
    proxies: Proxies,
}

/// An answer whose body has not been read.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    /// Given back to the pool at the body's end.
    connection: Option<(Target, SendRequest<Body>)>,
    idle: Idle,
    silence: Duration,
}

impl Pool {
    pub fn new(timeouts: Timeouts, proxies: Proxies) -> Pool {
        Pool { idle: Arc::default(), timeouts, proxies }
    }

    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    pub async fn send(
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
        // A proxy that is not asked for a tunnel is told the whole address.
        let whole_path = proxy.filter(|_| !target.tls).map(|_| format!("{target}{path}"));
        let path = whole_path.as_deref().unwrap_or(path);
        *request.uri_mut() = path.parse().map_err(|_| HttpError::Broken(format!("{path:?} is no path")))?;
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
        let mut sender = self.connection(target, tls).await?;
        let answer = timeout(self.timeouts.silence, sender.send_request(request)).await;
        let answer = answer.map_err(|_| HttpError::Silent(self.timeouts.silence.as_secs()))?;
        let (parts, body) = answer.map_err(|error| HttpError::Broken(error.to_string()))?.into_parts();
        Ok(Reply {
            status: parts.status,
            headers: parts.headers,
            body,
            connection: Some((target.clone(), sender)),
            idle: self.idle.clone(),
            silence: self.timeouts.silence,
        })
    }

    async fn connection(&self, target: &Target, tls: &Arc<ClientConfig>) -> Result<SendRequest<Body>, HttpError> {
        while let Some(mut sender) = self.take_idle(target) {
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let limit = self.timeouts.connect;
        let connected = timeout(limit, connect(target, tls, self.proxies.of(target))).await;
        connected.map_err(|_| HttpError::Connect(format!("no connection within {} seconds", limit.as_secs())))?
    }

    fn take_idle(&self, target: &Target) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock();
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().position(|(other, _)| other == target)?;
        Some(idle.swap_remove(at).1)
    }
}

pub fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

async fn connect(
    target: &Target,
    tls: &Arc<ClientConfig>,
    proxy: Option<&Proxy>,
) -> Result<SendRequest<Body>, HttpError> {
    let mut stream = reach(proxy.map_or(target, |proxy| &proxy.target)).await?;
    if !target.tls {
        return speak(stream).await;
    }
    if let Some(proxy) = proxy {
        tunnel(&mut stream, proxy, target).await?;
    }
    let name = ServerName::try_from(bare(&target.host)).map_err(|error| HttpError::Tls(error.to_string()))?;
    match TlsConnector::from(tls.clone()).connect(name, stream).await {
        Ok(stream) => speak(stream).await,
        Err(error) => Err(tls_error(&error)),
    }
}

/// A host as resolvers and certificates have it: a v6 address without its brackets.
fn bare(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

async fn reach(target: &Target) -> Result<TcpStream, HttpError> {
    let stream = TcpStream::connect((bare(&target.host), target.port)).await;
    let stream = stream.map_err(|error| HttpError::Connect(error.to_string()))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn tls_error(error: &std::io::Error) -> HttpError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => HttpError::NotTls,
        Some(error) => HttpError::Tls(error.to_string()),
        None => HttpError::Connect(error.to_string()),
    }
}

async fn speak<S>(stream: S) -> Result<SendRequest<Body>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|error| HttpError::Broken(error.to_string()))?;
    // Ends with the connection, of which the sender and the body tell what went wrong.
    tokio::spawn(connection);
    Ok(sender)
}

impl Reply {
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next piece of the body; none at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = timeout(self.silence, self.body.frame()).await;
            match frame.map_err(|_| HttpError::Silent(self.silence.as_secs()))? {
                None => {
                    self.give_back();
                    return Ok(None);
                }
                Some(Err(error)) => return Err(HttpError::Broken(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The whole body, none if it is longer than that.
    pub async fn bytes(mut self, most: u64) -> Result<Option<Vec<u8>>, HttpError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if (bytes.len() + chunk.len()) as u64 > most {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    /// Reads a short rest, so that the connection can be used again.
    pub async fn discard(self) {
        let _ = self.bytes(64 << 10).await;
    }

    fn give_back(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }
}
