//! The side of the node, which accepts connections to itself.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;

use crate::{CONNECTION_WINDOW, MAX_STREAMS, PING_INTERVAL, PING_TIMEOUT, STREAM_WINDOW};

/// Why a target is not connected to.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This node does not let servers connect to it.
    #[error("the node does not allow connections to this target")]
    Forbidden,
    #[error(transparent)]
    Dial(#[from] std::io::Error),
}

/// A connection in progress.
pub type DialFuture<'a> = Pin<Box<dyn Future<Output = Result<TcpStream, Refusal>> + Send + 'a>>;

/// Decides about a target, and connects to it.
pub trait TargetDialer: Send + Sync + 'static {
    /// A connection to a target that this node allows.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a>;
}

/// Serves a tunnel over an upgraded connection until it ends.
pub async fn serve<S>(connection: S, dialer: Arc<dyn TargetDialer>) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let dialer = dialer.clone();
        async move { Ok::<_, Infallible>(connect(request, &*dialer).await) }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(Some(PING_INTERVAL))
        .keep_alive_timeout(PING_TIMEOUT);
    builder.serve_connection(TokioIo::new(connection), service).await
}

async fn connect(mut request: Request<Incoming>, dialer: &dyn TargetDialer) -> Response<Empty<Bytes>> {
    let authority = request.uri().authority().filter(|_| request.method() == Method::CONNECT);
    let target = authority.and_then(|authority| Some((authority.host().to_string(), authority.port_u16()?)));
    let Some((host, port)) = target else { return respond(StatusCode::BAD_REQUEST) };
    let mut stream = match dialer.dial(host.trim_matches(['[', ']']), port).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(host, port, %error, "refused a connection through the tunnel");
            return respond(match error {
                Refusal::Forbidden => StatusCode::FORBIDDEN,
                Refusal::Dial(_) => StatusCode::BAD_GATEWAY,
            });
        }
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        if let Err(error) = copy_bidirectional(&mut TokioIo::new(upgraded), &mut stream).await {
            tracing::debug!(%error, "connection through the tunnel ended");
        }
    });
    respond(StatusCode::OK)
}

fn respond(code: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = code;
    response
}
