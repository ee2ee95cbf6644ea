//! The port forwarding client over SPDY, plain or tunneled in WebSocket.

use std::io::Result;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::spdy::{Limits, Role, Session, Stream};
use crate::upgrade::Transport;
use crate::websocket::{Role as WebSocketRole, byte_stream};

/// The protocols to request for each transport.
pub const SPDY_PREFERRED: &[&str] = super::SPDY_PROTOCOLS;
/// The protocols to request over WebSocket.
pub const TUNNEL_PREFERRED: &[&str] = super::TUNNEL_PROTOCOLS;
const MAX_MESSAGE: u64 = 64 * 1024;

/// Forwards connections over one session.
pub struct Forwarder {
    session: Session,
    next: AtomicU32,
}

/// Why a forwarded connection failed.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// The message on the error stream.
    #[error("{0}")]
    Remote(String),
    /// The error stream was not read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// One connection to a port.
pub struct ForwardedConnection {
    pub data: Stream,
    error: Stream,
}

impl Forwarder {
    /// A forwarder over an upgraded connection.
    pub fn new<IO: crate::Connection>(io: IO, transport: Transport) -> Self {
        let check = |_: &_| Err("unexpected".into());
        let session = match transport {
            Transport::Spdy => Session::new(io, Role::Client, Limits::default(), check),
            Transport::WebSocket => {
                Session::new(byte_stream(io, WebSocketRole::Client), Role::Client, Limits::default(), check)
            }
        };
        Self { session, next: AtomicU32::new(0) }
    }

    /// Opens a connection to a port. The error stream is opened first, since servers pair the streams of old clients
    /// in that order.
    pub async fn connect(&self, port: u16) -> Result<ForwardedConnection> {
        let request = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let headers = |kind: &str| {
            let pairs = [("streamtype", kind), ("port", &port.to_string()), ("requestid", &request)];
            pairs.map(|(name, value)| (name.to_string(), value.to_string())).to_vec()
        };
        let mut error = self.session.open(headers("error")).await?;
        error.shutdown().await?;
        let data = self.session.open(headers("data")).await?;
        Ok(ForwardedConnection { data, error })
    }

    /// Resolves when the connection has ended.
    pub async fn over(&self) {
        let _ = self.session.over().wait_for(|over| *over).await;
    }
}

impl ForwardedConnection {
    /// The streams of a connection: its data, and its error once it has ended.
    pub fn split(self) -> (Stream, impl Future<Output = std::result::Result<(), ForwardError>> + Send) {
        let Self { data, error } = self;
        let outcome = async move {
            let mut message = String::new();
            match error.take(MAX_MESSAGE).read_to_string(&mut message).await {
                Ok(_) if message.is_empty() => Ok(()),
                Ok(_) => Err(ForwardError::Remote(message)),
                Err(error) => Err(error.into()),
            }
        };
        (data, outcome)
    }
}
