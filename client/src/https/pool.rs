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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_client::Trust;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// The type of a frame of HTTP/2 with the head of a request.
    const HEADERS: u8 = 1;

    /// A server that closes its first connections as soon as they have brought a whole request, like one that is killed.
    struct DyingServer {
        address: SocketAddr,
        requests: Arc<AtomicUsize>,
    }

    impl DyingServer {
        async fn start(alpn: &[u8], deaths: usize) -> DyingServer {
            let key = rcgen::KeyPair::generate().expect("a key");
            let params = rcgen::CertificateParams::new(vec!["localhost".to_string()]).expect("a name");
            let certificate = params.self_signed(&key).expect("a certificate").der().clone();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let key = PrivatePkcs8KeyDer::from(key.serialize_der());
            let config =
                config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key.into());
            let mut config = config.expect("a key that fits");
            config.alpn_protocols = vec![alpn.to_vec()];
            let (acceptor, is_http2) = (TlsAcceptor::from(Arc::new(config)), alpn == tls::HTTP2);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let requests = Arc::new(AtomicUsize::new(0));
            let count = requests.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let mut stream = acceptor.accept(stream).await.expect("a handshake");
                    match is_http2 {
                        true => read_frames(&mut stream).await,
                        false => read_head(&mut stream).await,
                    }
                    if count.fetch_add(1, Ordering::Relaxed) >= deaths {
                        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                        stream.write_all(response).await.expect("sent");
                        let _ = stream.shutdown().await;
                    }
                }
            });
            DyingServer { address, requests }
        }

        async fn send(&self, method: Method) -> Result<Vec<u8>> {
            let tls = tls::config(&Trust::InsecureSkipVerify, None, &[]).expect("TLS");
            let pool = Pool::new("127.0.0.1", self.address.port(), "localhost", Arc::new(tls)).expect("a pool");
            let mut request = Request::new(Bytes::new());
            *request.method_mut() = method;
            *request.uri_mut() = format!("https://{}/version", self.address).parse().expect("a URI");
            pool.send(request).await?.into_body().whole().await.map(|body| body.to_vec())
        }

        fn requests(&self) -> usize {
            self.requests.load(Ordering::Relaxed)
        }
    }

    async fn read_head(stream: &mut (impl AsyncRead + Unpin)) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a request"));
        }
    }

    async fn read_frames(stream: &mut (impl AsyncRead + Unpin)) {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.expect("the preface");
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            stream.read_exact(&mut vec![0; length as usize]).await.expect("its content");
            if head[3] == HEADERS {
                return;
            }
        }
    }

    #[tokio::test]
    async fn reads_in_flight_are_sent_again() {
        for method in [Method::GET, Method::HEAD] {
            let server = DyingServer::start(tls::HTTP1, 2).await;
            server.send(method.clone()).await.expect("the third connection responds");
            assert_eq!(server.requests(), 3, "{method}");
        }
        for alpn in [tls::HTTP1, tls::HTTP2] {
            let server = DyingServer::start(alpn, usize::MAX).await;
            server.send(Method::GET).await.expect_err("it dies every time");
            assert_eq!(server.requests(), 3, "so often and not more");
        }
    }

    /// The server may have carried them out before it died.
    #[tokio::test]
    async fn writes_in_flight_are_not_sent_again() {
        for alpn in [tls::HTTP1, tls::HTTP2] {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let server = DyingServer::start(alpn, usize::MAX).await;
                server.send(method.clone()).await.expect_err("the connection broke");
                assert_eq!(server.requests(), 1, "{method}");
            }
        }
    }
}
