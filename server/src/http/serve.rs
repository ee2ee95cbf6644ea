//! Accepts connections, serves TLS with HTTP/1.1 or HTTP/2 on them, and passes each request to the chain.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use stdx::sources::{ConnectionPermit, Sources};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::activity::Activity;
use super::io::{Socket, TlsConnection};
use super::request_line::RequestPosition;
use crate::Server;
use crate::authentication::{CaBundle, ClientChain};
use crate::call::{Call, HttpResponse, Peer};
use crate::filters::chain;
use crate::request::body::Body;
use crate::request::limits::PATIENCE;
use crate::request::watch_flag::WatchFlag;
use crate::tls::{self, Serving};

/// Open watches and long responses get this long when the server drains.
const DRAIN: Duration = Duration::from_secs(10);

/// The send buffer for a client that does not read; the kernel doubles it. The default would be megabytes.
const SEND_BYTES: usize = 256 << 10;
/// The limit of bytes that wait for TLS, and of the head of a request.
const HTTP1_BYTES: usize = 128 << 10;

/// Serves until `server.closing` becomes true, then drains.
pub async fn serve(server: Arc<Server>, listener: TcpListener, tls: Handshake) {
    let mut acceptor = Acceptor::new(tls);
    let sources = Sources::new(server.config.limits.unknown_connections);
    // Connections inherit the size. If the kernel rejects it, it keeps its default.
    let _ = socket2::SockRef::from(&listener).set_send_buffer_size(SEND_BYTES);
    let mut closing = server.closing.subscribe();
    // Each connection holds a receiver; when all are dropped the server is drained.
    let connections = watch::Sender::new(());
    loop {
        let accepted = tokio::select! {
            biased;
            () = closed(&mut closing) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let Some(seat) = sources.admit(address.ip()) else { continue };
                let guard = connections.subscribe();
                let Some(acceptor) = acceptor.current(&server) else { continue };
                tokio::spawn(connection(server.clone(), acceptor, stream, seat, guard));
            }
            Err(error) => {
                // Most likely the process has no free file descriptors: open connections continue, and accepting is
                // retried.
                tracing::warn!(%error, "failed to accept connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, connections.closed()).await;
}

/// The certificate and the TLS settings of the server.
#[derive(Clone)]
pub struct Handshake {
    pub serving: Arc<Serving>,
    pub options: tls::Options,
}

/// Names the current CAs of clients: they can be replaced while running.
struct Acceptor {
    tls: Handshake,
    made: Option<(TlsAcceptor, [Option<u64>; 2])>,
}

impl Acceptor {
    fn new(tls: Handshake) -> Acceptor {
        Acceptor { tls, made: None }
    }

    fn current(&mut self, server: &Server) -> Option<TlsAcceptor> {
        let proxies = server.registry.authentication.config.request_header.as_ref().map(|proxies| &proxies.cas);
        let cas = [server.registry.authentication.config.clients.as_ref(), proxies];
        let generations = cas.map(|cas| cas.map(CaBundle::generation));
        if self.made.as_ref().is_none_or(|(_, made)| *made != generations) {
            let hints = cas.into_iter().flatten().flat_map(CaBundle::subjects).collect();
            match tls::server_config_with_hints(self.tls.serving.clone(), &self.tls.options, hints) {
                Ok(config) => self.made = Some((TlsAcceptor::from(config), generations)),
                Err(error) => tracing::error!(%error, "failed to configure TLS"),
            }
        }
        self.made.as_ref().map(|(acceptor, _)| acceptor.clone())
    }
}

/// Waits until the server drains.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped, which is the same.
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn connection(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    seat: ConnectionPermit,
    guard: watch::Receiver<()>,
) {
    let _guard = guard;
    let Ok(address) = stream.peer_addr() else { return };
    if !server.config.accepts.allows(&stream) {
        return;
    }
    let _ = stream.set_nodelay(true);
    let watched = WatchFlag::default();
    let patience = server.config.limits.first_request_timeout;
    let seat = Arc::new(seat);
    let activity = Activity::new(seat.clone());
    let handshake = tokio::select! {
        () = activity.until_idle(patience) => return,
        handshake = acceptor.accept(Socket::new(stream)) => handshake,
    };
    let Ok(tls) = handshake else { return };
    let chain = tls.get_ref().1.peer_certificates().unwrap_or(&[]);
    let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
    let peer = Peer {
        address,
        certificates: Arc::new(ClientChain::new(chain)),
        watched: watched.clone(),
        leave: Arc::default(),
        seat: Some(seat),
    };
    let mut closing = server.closing.subscribe();
    let streams = server.config.limits.http2_max_streams;
    let leave = peer.leave.clone();
    let requests = activity.clone();
    let position = RequestPosition::default();
    let secured = TlsConnection::new(tls, watched, position.clone());
    let service = service_fn(move |request| {
        position.set_request(&request);
        respond(server.clone(), peer.clone(), requests.clone(), request)
    });
    let builder = builder(streams);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(secured), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = leave.notified() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = activity.until_idle(patience) => return,
    };
    if let Err(error) = result {
        tracing::debug!(%error, %address, "connection ended");
    }
}

pub(super) fn builder(streams: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HTTP1_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_send_buf_size(64 << 10)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(15));
    builder
}

async fn respond(
    server: Arc<Server>,
    peer: Peer,
    activity: Activity,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    let active = activity.begin();
    if request.version() == Version::HTTP_2 && should_send_goaway(server.config.limits.goaway_chance) {
        peer.leave.notify_one();
    }
    let call = Call::from_request(request, peer, server.now());
    let response = chain::handle(server, call).await;
    Ok(match active.filter(|_| activity.is_counted()) {
        Some(active) => response.map(|body| Body::held(body, Box::new(active))),
        None => response,
    })
}

/// Whether this request ends its connection.
fn should_send_goaway(chance: f64) -> bool {
    chance > 0.0 && (crate::common::ids::below(1 << 32) as f64) < chance * (1u64 << 32) as f64
}
