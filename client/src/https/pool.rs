//! Connections to one server. An unsent request is retried on another connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use http_client::pool::Lease;
use http_client::protocol::{Http2Options, KeepAlive};
use http_client::{Address, SendError, tls};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use stdx::sync::RwLock;

use crate::{Body, Error, Result};

const CONNECT: Duration = Duration::from_secs(30);
/// Pings on idle connections.
const KEEP_ALIVE: KeepAlive = KeepAlive { interval: Duration::from_secs(30), timeout: Duration::from_secs(15) };
const MAX_IDLE: usize = 8;
/// How often a read is sent again.
const READ_RETRIES: u32 = 2;
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Pool {
    address: Address,
    authority: Authority,
    tls: RwLock<Arc<ClientConfig>>,
    connections: http_client::Pool<Full<Bytes>>,
}

fn offering_http2(tls: &ClientConfig) -> Arc<ClientConfig> {
    Arc::new(tls::with_alpn(tls, &[tls::HTTP2, tls::HTTP1]))
}

impl Pool {
    pub(super) fn new(host: &str, port: u16, name: &str, tls: Arc<ClientConfig>) -> Result<Pool> {
        let bracketed = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        ServerName::try_from(name).map_err(|error| failed(&error))?;
        Ok(Pool {
            address: Address { tls: true, host: host.to_string(), port, name: name.to_string() },
            authority: bracketed.parse().map_err(|error: http::uri::InvalidUri| failed(&error))?,
            tls: RwLock::new(offering_http2(&tls)),
            connections: http_client::Pool::new(MAX_IDLE),
        })
    }

    /// Used for new connections; existing ones finish their requests.
    pub(super) fn exchange_tls(&self, tls: &ClientConfig) {
        *self.tls.write() = offering_http2(tls);
        self.connections.clear();
    }

    pub(super) fn authority(&self) -> Authority {
        self.authority.clone()
    }

    /// Reads that were in flight when their connection broke are sent again: the server may be dead, and the address
    /// that of a load balancer, which leads to another one. A write may have been carried out already.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut retries = if is_read { READ_RETRIES } else { 0 };
        loop {
            match self.attempt(request.clone()).await? {
                Ok(response) => return Ok(response),
                Err(error) if retries > 0 => {
                    tracing::debug!(%error, "connection lost during a read, retrying");
                    retries -= 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(failed(&error.into_inner())),
            }
        }
    }

    /// Sends a request; the inner error is that of a connection that broke after it was sent.
    async fn attempt(&self, request: Request<Bytes>) -> Result<std::result::Result<Response<Body>, SendError>> {
        // An idle connection may be closed without our knowledge. An unsent request can be retried.
        if let Some(connection) = self.connections.take(&self.address) {
            match self.send_on(connection, request.clone()).await? {
                Err(SendError::NotSent(error)) => {
                    tracing::debug!(%error, "idle connection was closed, opening another")
                }
                sent => return Ok(sent),
            }
        }
        let connection = self.connect().await?;
        self.send_on(connection, request).await
    }

    async fn send_on(
        &self,
        connection: Lease<Full<Bytes>>,
        mut request: Request<Bytes>,
    ) -> Result<std::result::Result<Response<Body>, SendError>> {
        if !connection.is_http2() {
            // HTTP/1.1 needs the Host header and a path-only URI.
            let host = HeaderValue::try_from(self.authority.as_str()).map_err(|error| failed(&error))?;
            request.headers_mut().insert(header::HOST, host);
            let path = request.uri().path_and_query().cloned();
            *request.uri_mut() = path.map(http::Uri::from).unwrap_or_default();
        }
        Ok(connection.send(request.map(Full::new)).await.map(|response| response.map(Body::new)))
    }

    async fn connect(&self) -> Result<Lease<Full<Bytes>>> {
        let connection = tokio::time::timeout(CONNECT, self.dial()).await;
        let connection = connection.unwrap_or_else(|_| Err(Error::Transport("timed out connecting".to_string())));
        connection.map_err(|error| match error {
            Error::Transport(why) => Error::Transport(format!("https://{}: {why}", self.authority)),
            other => other,
        })
    }

    async fn dial(&self) -> Result<Lease<Full<Bytes>>> {
        let tls = self.tls.read().clone();
        let stream = http_client::connect(&self.address, &tls).await.map_err(|error| failed(&error))?;
        if stream.is_http2() {
            let options = Http2Options { keep_alive: Some(KEEP_ALIVE), ..Http2Options::default() };
            let sender = http_client::handshake_http2(stream, options).await.map_err(|error| failed(&error))?;
            return Ok(self.connections.add_http2(&self.address, sender));
        }
        let sender = http_client::handshake_http1(stream).await.map_err(|error| failed(&error))?;
        Ok(self.connections.add_http1(&self.address, sender))
    }
}

fn failed(error: &dyn std::error::Error) -> Error {
    Error::Transport(stdx::error::chain(error))
}
