//! The HTTP port of a component other than the API server, with TLS or without: health, metrics, and its own paths.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use stdx::sources::{ConnectionPermit, SourceLimits, Sources};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::activity::{ActiveRequest, Activity};
use super::serve::builder;
use crate::authentication::ClientChain;
use crate::request::limits::PATIENCE;

/// A request to a component's port.
pub struct ComponentRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    /// Empty until [`ComponentRequest::read`].
    pub body: Bytes,
    incoming: Option<Incoming>,
    /// For an upgrade of the connection to another protocol.
    pub upgrade: Option<OnUpgrade>,
    pub chain: Arc<ClientChain>,
    /// Counts against the source until the client is known.
    seat: Arc<ConnectionPermit>,
}

impl ComponentRequest {
    /// The client is authenticated: its connection counts no longer against its source.
    pub fn release_source(&self) {
        self.seat.release();
    }

    /// Reads the body, after the client was authorized. False if it is too large or does not arrive.
    pub async fn read(&mut self) -> bool {
        let Some(incoming) = self.incoming.take() else { return true };
        let whole = http_body_util::Limited::new(incoming, MAX_BODY_BYTES).collect();
        let Ok(Ok(whole)) = tokio::time::timeout(PATIENCE, whole).await else { return false };
        self.body = whole.to_bytes();
        true
    }
}

/// A small response of a component.
pub struct Reply {
    pub code: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Reply {
    /// A reply with a tree as JSON.
    pub fn json(code: u16, tree: &api::Tree) -> Reply {
        Reply { code, content_type: "application/json", body: api::json::encode(tree, None).into() }
    }

    /// A reply with plain text.
    pub fn text(code: u16, text: impl Into<Bytes>) -> Reply {
        Reply { code, content_type: "text/plain; charset=utf-8", body: text.into() }
    }
}

/// A response: complete, or streamed.
pub type ComponentResponse = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

impl From<Reply> for ComponentResponse {
    fn from(reply: Reply) -> ComponentResponse {
        let mut response = Response::new(Full::new(reply.body).map_err(|never| match never {}).boxed_unsync());
        *response.status_mut() = http::StatusCode::from_u16(reply.code).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(reply.content_type));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
        response
    }
}

/// The future of a handler's response.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = ComponentResponse> + Send + 'a>>;

/// Answers the requests of a component's port.
pub trait Handler: Send + Sync + 'static {
    fn respond(&self, question: ComponentRequest) -> ResponseFuture<'_>;
}

/// The most streams of a connection; clients are few.
const STREAMS: u32 = 100;
/// The maximum size of a request body.
const MAX_BODY_BYTES: usize = 3 << 20;
/// The limits of concurrent connections of clients that are not authenticated, in total and per source.
const CONNECTIONS: SourceLimits = SourceLimits { total: 1000, per_source: 400 };

/// Serves until `closing` becomes true; `tls` is None for clients of this machine.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<dyn Handler>,
    closing: watch::Receiver<bool>,
) {
    serve_within(CONNECTIONS, listener, tls, handler, closing).await;
}

async fn serve_within(
    limits: SourceLimits,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<dyn Handler>,
    mut closing: watch::Receiver<bool>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let sources = Sources::new(limits);
    loop {
        let accepted = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let Some(seat) = sources.admit(address.ip()) else { continue };
        let (acceptor, client) = (acceptor.clone(), Client::new(seat, handler.clone()));
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => secured(stream, acceptor, client).await,
                None => connection(stream, client).await,
            }
        });
    }
}

/// The client of a connection, and who serves it.
#[derive(Clone)]
struct Client {
    seat: Arc<ConnectionPermit>,
    activity: Activity,
    chain: Arc<ClientChain>,
    handler: Arc<dyn Handler>,
}

impl Client {
    fn new(seat: ConnectionPermit, handler: Arc<dyn Handler>) -> Client {
        let seat = Arc::new(seat);
        let activity = Activity::new(seat.clone());
        Client { seat, activity, chain: Arc::new(ClientChain::new(Vec::new())), handler }
    }
}

async fn secured(stream: TcpStream, acceptor: TlsAcceptor, client: Client) {
    let handshake = tokio::select! {
        () = client.activity.until_idle(PATIENCE) => return,
        handshake = acceptor.accept(stream) => handshake,
    };
    let Ok(tls) = handshake else { return };
    let chain = tls.get_ref().1.peer_certificates().unwrap_or(&[]);
    let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
    connection(tls, Client { chain: Arc::new(ClientChain::new(chain)), ..client }).await;
}

async fn connection<S>(stream: S, client: Client)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let activity = client.activity.clone();
    let service = service_fn(move |request| respond(client.clone(), request));
    let builder = builder(STREAMS);
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        result = served => if let Err(error) = result {
            tracing::debug!(%error, "connection ended");
        },
        () = activity.until_idle(PATIENCE) => {}
    }
}

async fn respond(client: Client, mut request: Request<Incoming>) -> Result<ComponentResponse, Infallible> {
    let active = client.activity.begin();
    let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (parts, incoming) = request.into_parts();
    let question = ComponentRequest {
        method: parts.method,
        path: parts.uri.path().to_string(),
        query: parts.uri.query().unwrap_or_default().to_string(),
        headers: parts.headers,
        body: Bytes::new(),
        incoming: Some(incoming),
        upgrade,
        chain: client.chain.clone(),
        seat: client.seat.clone(),
    };
    let response = client.handler.respond(question).await;
    Ok(match active.filter(|_| client.activity.is_counted()) {
        Some(active) => response.map(|body| hold_until_end(body, active)),
        None => response,
    })
}

/// A streamed response is in progress until its last byte.
fn hold_until_end(
    body: UnsyncBoxBody<Bytes, std::io::Error>,
    active: ActiveRequest,
) -> UnsyncBoxBody<Bytes, std::io::Error> {
    let held = body.map_frame(move |frame| {
        let _ = &active;
        frame
    });
    held.boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Knows clients that send a token.
    struct Hello;

    impl Handler for Hello {
        fn respond(&self, question: ComponentRequest) -> ResponseFuture<'_> {
            if question.headers.contains_key(header::AUTHORIZATION) {
                question.release_source();
            }
            Box::pin(std::future::ready(Reply::text(200, "hello").into()))
        }
    }

    const ANONYMOUS: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const KNOWN: &str = "GET / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer t\r\n\r\n";

    /// A connection from one of this machine's addresses, after a request; None if it is closed.
    async fn connect_from(source: u8, server: SocketAddr, request: &str) -> Option<TcpStream> {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, source], 0))).expect("an address");
        let mut stream = socket.connect(server).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.read(&mut [0; 1024]).await.ok().filter(|read| *read > 0)?;
        Some(stream)
    }

    async fn start(per_source: usize) -> (SocketAddr, watch::Sender<bool>) {
        start_with(SourceLimits { total: 100, per_source }).await
    }

    async fn start_with(limits: SourceLimits) -> (SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, closing) = watch::channel(false);
        tokio::spawn(serve_within(limits, listener, None, Arc::new(Hello), closing));
        (address, stop)
    }

    /// Whether the server closes the connection in this time.
    async fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
        let mut byte = [0];
        matches!(tokio::time::timeout(within, stream.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
    }

    #[tokio::test(start_paused = true)]
    async fn closes_silent_connections() {
        let (address, _stop) = start(100).await;
        let mut silent = TcpStream::connect(address).await.expect("a connection");
        assert!(is_closed(&mut silent, PATIENCE * 2).await);
        // The client preface of HTTP/2 only selects the version.
        let mut preface = TcpStream::connect(address).await.expect("a connection");
        preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("a write");
        let whole = tokio::time::timeout(PATIENCE * 2, preface.read_to_end(&mut Vec::new())).await;
        assert!(whole.is_ok(), "the connection is still open");
    }

    #[tokio::test]
    async fn limits_connections_per_source() {
        let (address, _stop) = start(3).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a write");
            assert!(stream.read(&mut [0; 64]).await.expect("an answer") > 0);
            held.push(stream);
        }
        let mut refused = TcpStream::connect(address).await.expect("a connection");
        assert!(is_closed(&mut refused, PATIENCE / 2).await);
        drop(held.pop());
        let served = async {
            loop {
                let mut stream = TcpStream::connect(address).await.expect("a connection");
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
                if stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE / 2, served).await.expect("the seat is free again");
    }

    #[tokio::test]
    async fn a_few_sources_cannot_fill_the_port() {
        let (address, _stop) = start_with(SourceLimits { total: 9, per_source: 4 }).await;
        let mut held = Vec::new();
        for source in [1, 1, 1, 1, 2, 2, 2, 2, 3] {
            held.push(connect_from(source, address, ANONYMOUS).await.expect("a seat"));
        }
        // Known clients come from another source and from one that has all its seats but one; none counts afterwards.
        for source in [4, 4, 4, 4, 4, 4, 3, 3, 3, 3] {
            held.push(connect_from(source, address, KNOWN).await.expect("a known client gets in"));
        }
        for stream in held.iter_mut().rev().take(10) {
            stream.write_all(KNOWN.as_bytes()).await.expect("a write");
            assert!(stream.read(&mut [0; 1024]).await.expect("a response") > 0, "a known client stays");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closes_idle_connections_of_unauthenticated_clients() {
        let (address, _stop) = start(100).await;
        let (mut sender, connection) = http2_client(address).await;
        let connection = tokio::spawn(connection);
        let request = || Request::get("http://a/").body(Full::<Bytes>::default()).expect("a request");
        assert_eq!(sender.send_request(request()).await.expect("a response").status(), 200);
        let ended = tokio::time::timeout(PATIENCE * 2, connection).await;
        assert!(ended.is_ok(), "an idle connection of HTTP/2 is closed");
        let (mut sender, connection) = http2_client(address).await;
        let connection = tokio::spawn(connection);
        let mut known = request();
        known.headers_mut().insert(header::AUTHORIZATION, http::HeaderValue::from_static("Bearer t"));
        assert_eq!(sender.send_request(known).await.expect("a response").status(), 200);
        let ended = tokio::time::timeout(PATIENCE * 10, connection).await;
        assert!(ended.is_err(), "that of a known client stays");
    }

    type Http2Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

    async fn http2_client(address: SocketAddr) -> (Http2Sender, impl Future<Output = hyper::Result<()>> + Send) {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let executor = hyper_util::rt::TokioExecutor::new();
        hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.expect("a handshake")
    }
}
