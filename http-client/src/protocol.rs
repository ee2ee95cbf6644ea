//! HTTP/1.1 and HTTP/2 over a connection of any kind: TCP, TLS, or a Unix socket.

use std::error::Error;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

/// A body that can be sent.
pub trait SendBody: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static {}
impl<B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static> SendBody for B {}

/// Pings on an HTTP/2 connection, also while it is idle.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    pub interval: Duration,
    /// Without a response for so long, the connection is closed.
    pub timeout: Duration,
}

/// Flow control and pings of an HTTP/2 connection; hyper's defaults where nothing is set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Http2Options {
    pub keep_alive: Option<KeepAlive>,
    pub stream_window: Option<u32>,
    pub connection_window: Option<u32>,
}

/// Starts HTTP/1.1. The connection ends when the sender and the last body are dropped, or it is upgraded.
pub async fn handshake_http1<S, B>(stream: S) -> hyper::Result<http1::SendRequest<B>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: SendBody,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The sender and the body report an error too.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "outbound connection failed");
        }
    });
    Ok(sender)
}

/// Starts HTTP/2, without an upgrade from HTTP/1.1.
pub async fn handshake_http2<S, B>(stream: S, options: Http2Options) -> hyper::Result<http2::SendRequest<B>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: SendBody + Unpin,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    if let Some(keep_alive) = options.keep_alive {
        builder.keep_alive_interval(keep_alive.interval).keep_alive_timeout(keep_alive.timeout);
        builder.keep_alive_while_idle(true);
    }
    if let Some(window) = options.stream_window {
        builder.initial_stream_window_size(window);
    }
    if let Some(window) = options.connection_window {
        builder.initial_connection_window_size(window);
    }
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "outbound connection failed");
        }
    });
    Ok(sender)
}

/// Sends one request over a connection of its own, which may be upgraded afterwards.
pub async fn send_once<S, B>(stream: S, request: Request<B>) -> hyper::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: SendBody,
{
    handshake_http1(stream).await?.send_request(request).await
}
