//! The side of the server, which connects through the tunnel.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use http_client::protocol::{Http2Options, KeepAlive};
use hyper::client::conn::http2::SendRequest;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{CONNECTION_WINDOW, PING_INTERVAL, PING_TIMEOUT, STREAM_WINDOW};

/// Why there is no connection through a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("invalid target {0:?}")]
    Target(String),
    /// The tunnel has ended.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The node refuses the target.
    #[error("the node does not allow connections to {0}")]
    Forbidden(String),
    #[error("the node failed to connect to {0}")]
    Unreachable(String),
}

/// A tunnel to a node. Clones share it.
#[derive(Clone)]
pub struct Tunnel(SendRequest<Empty<Bytes>>);

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

impl Tunnel {
    /// Starts a tunnel over an upgraded connection. It ends when all clones and streams are dropped.
    pub async fn open<S>(connection: S) -> Result<Tunnel, TunnelError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let options = Http2Options {
            keep_alive: Some(KeepAlive { interval: PING_INTERVAL, timeout: PING_TIMEOUT }),
            stream_window: Some(STREAM_WINDOW),
            connection_window: Some(CONNECTION_WINDOW),
        };
        Ok(Tunnel(http_client::handshake_http2(connection, options).await?))
    }

    /// Whether the node has closed it, or is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// A connection to a target that the node allows.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TunnelStream, TunnelError> {
        let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let invalid = || TunnelError::Target(target.clone());
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = Uri::builder().authority(target.as_str()).build().map_err(|_| invalid())?;
        let response = self.0.clone().send_request(request).await?;
        match response.status() {
            StatusCode::OK => Ok(TunnelStream(TokioIo::new(hyper::upgrade::on(response).await?))),
            StatusCode::FORBIDDEN => Err(TunnelError::Forbidden(target)),
            _ => Err(TunnelError::Unreachable(target)),
        }
    }
}

/// A connection through a tunnel.
#[derive(Debug)]
pub struct TunnelStream(TokioIo<Upgraded>);

impl AsyncRead for TunnelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
