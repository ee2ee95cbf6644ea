//! Connections to one server: HTTP/2 connections carry many requests at a time, HTTP/1.1 connections one. Broken
//! connections are dropped; an unsent request is retried on another.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stdx::sync::{Mutex, MutexGuard, RwLock};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Body, Error, Result};

const CONNECT: Duration = Duration::from_secs(30);
/// Keep-alive interval and timeout of idle connections.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);
/// Servers allow a hundred streams, and watches occupy theirs for long.
const STREAMS: usize = 90;
const IDLE: usize = 8;

pub(super) struct Pool {
    host: String,
    port: u16,
    authority: Authority,
    name: ServerName<'static>,
    tls: RwLock<TlsConnector>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    many: Vec<Many>,
    idle: Vec<http1::SendRequest<Full<Bytes>>>,
}

/// An HTTP/2 connection. Each response holds the token until its body ends.
#[derive(Clone)]
struct Many {
    sender: http2::SendRequest<Full<Bytes>>,
    streams: Arc<()>,
}

enum Connection {
    Many(Many),
    One(http1::SendRequest<Full<Bytes>>),
}

fn connector(tls: &ClientConfig) -> TlsConnector {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(tls))
}

impl Pool {
    pub(super) fn new(host: &str, port: u16, name: &str, tls: Arc<ClientConfig>) -> Result<Pool> {
        let failed = |error: &dyn std::fmt::Display| Error::Transport(error.to_string());
        let bracketed = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Pool {
            host: host.to_string(),
            port,
            authority: bracketed.parse().map_err(|error: http::uri::InvalidUri| failed(&error))?,
            name: ServerName::try_from(name.to_string()).map_err(|error| failed(&error))?,
            tls: RwLock::new(connector(&tls)),
            open: Mutex::default(),
        })
    }

    /// Used for new connections; existing ones finish their requests.
    pub(super) fn exchange_tls(&self, tls: &ClientConfig) {
        *self.tls.write() = connector(tls);
        *self.open() = Open::default();
    }

    pub(super) fn authority(&self) -> Authority {
        self.authority.clone()
    }

    pub(super) async fn send(self: &Arc<Pool>, request: Request<Bytes>) -> Result<Response<Body>> {
        // An idle connection may be closed without our knowledge. An unsent request can be retried.
        let kept = self.take();
        if let Some(connection) = kept {
            match self.send_on(connection, request.clone()).await {
                Err(Failed::NotSent(error)) => tracing::debug!(%error, "idle connection was closed, opening another"),
                Err(Failed::Sent(error)) => return Err(error),
                Ok(response) => return Ok(response),
            }
        }
        let connection = self.connect().await?;
        self.send_on(connection, request).await.map_err(|failed| match failed {
            Failed::NotSent(error) | Failed::Sent(error) => error,
        })
    }

    fn take(&self) -> Option<Connection> {
        let mut open = self.open();
        open.many.retain(|many| !many.sender.is_closed());
        let free = open.many.iter().find(|many| Arc::strong_count(&many.streams) <= STREAMS);
        if let Some(many) = free {
            return Some(Connection::Many(many.clone()));
        }
        open.idle.retain(|sender| !sender.is_closed());
        open.idle.pop().map(Connection::One)
    }

    async fn send_on(self: &Arc<Pool>, connection: Connection, request: Request<Bytes>) -> Sent {
        match connection {
            Connection::Many(many) => many.send(request).await,
            Connection::One(sender) => self.send_one(sender, request).await,
        }
    }

    async fn send_one(
        self: &Arc<Pool>,
        mut sender: http1::SendRequest<Full<Bytes>>,
        mut request: Request<Bytes>,
    ) -> Sent {
        // HTTP/1.1 needs the Host header and a path-only URI.
        let host = HeaderValue::try_from(self.authority.as_str());
        request.headers_mut().insert(header::HOST, host.map_err(|error| Failed::Sent(failed(&error)))?);
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map(http::Uri::from).unwrap_or_default();
        sender.ready().await.map_err(|error| Failed::NotSent(failed(&error)))?;
        let response = sender.send_request(request.map(Full::new)).await.map_err(classify)?;
        let back = GiveBack { pool: self.clone(), sender: Some(sender) };
        Ok(response.map(|body| Body::new(Holding { body, held: Some(back) })))
    }

    async fn connect(&self) -> Result<Connection> {
        let connection = tokio::time::timeout(CONNECT, self.dial()).await;
        let connection = connection.unwrap_or_else(|_| Err(Error::Transport("timed out connecting".to_string())));
        connection.map_err(|error| match error {
            Error::Transport(why) => Error::Transport(format!("https://{}: {why}", self.authority)),
            other => other,
        })
    }

    async fn dial(&self) -> Result<Connection> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| failed(&error))?;
        // A request is one write; disable Nagle's algorithm.
        let _ = stream.set_nodelay(true);
        let tls = self.tls.read().clone();
        let stream = tls.connect(self.name.clone(), stream).await.map_err(|error| failed(&error))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            return Ok(Connection::One(sender));
        }
        let many = many(stream).await?;
        self.open().many.push(many.clone());
        Ok(Connection::Many(many))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

async fn many(stream: TlsStream<TcpStream>) -> Result<Many> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PONG).keep_alive_while_idle(true);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to the server failed");
        }
    });
    Ok(Many { sender, streams: Arc::new(()) })
}

impl Many {
    async fn send(self, request: Request<Bytes>) -> Sent {
        let Many { mut sender, streams } = self;
        sender.ready().await.map_err(|error| Failed::NotSent(failed(&error)))?;
        let response = sender.send_request(request.map(Full::new)).await.map_err(classify)?;
        Ok(response.map(|body| Body::new(Holding { body, held: Some(streams) })))
    }
}

type Sent = std::result::Result<Response<Body>, Failed>;

enum Failed {
    NotSent(Error),
    Sent(Error),
}

/// Whether the server may have received a failed request.
fn classify(error: hyper::Error) -> Failed {
    if error.is_canceled() || (error.is_closed() && !error.is_incomplete_message()) {
        Failed::NotSent(failed(&error))
    } else {
        Failed::Sent(failed(&error))
    }
}

fn failed(error: &dyn std::error::Error) -> Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Error::Transport(text)
}

/// A body that holds a value until its end.
struct Holding<T> {
    body: Incoming,
    held: Option<T>,
}

impl<T: AtEnd + Unpin> http_body::Body for Holding<T> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::result::Result<http_body::Frame<Bytes>, hyper::Error>>> {
        let frame = std::pin::Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, std::task::Poll::Ready(None)) || self.body.is_end_stream() {
            self.held.take().into_iter().for_each(AtEnd::at_end);
        }
        frame
    }
}

trait AtEnd {
    fn at_end(self);
}

impl AtEnd for Arc<()> {
    fn at_end(self) {}
}

/// Returns the connection to the pool once its response was read; otherwise it is dropped.
struct GiveBack {
    pool: Arc<Pool>,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl AtEnd for GiveBack {
    fn at_end(mut self) {
        let mut open = self.pool.open();
        if open.idle.len() < IDLE {
            open.idle.extend(self.sender.take());
        }
    }
}
