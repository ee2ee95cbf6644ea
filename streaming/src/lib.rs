//! The protocols by which Kubernetes carries a command's streams and forwarded ports over one upgraded HTTP
//! connection: both ends of each, over WebSocket and SPDY. It knows bytes, channels and exit codes; not pods, not
//! containers, not who may do what.

mod channels;
mod idle;
pub mod port_forward;
pub mod relay;
pub mod remote_command;
pub mod spdy;
mod tunnel;
mod upgrade;
pub mod websocket;

pub use tunnel::tunnel;
pub use upgrade::{Carrier, Refusal, agreed, ask};

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// An end of a connection that can be moved about.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// How long an end waits for the other.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until the streams that were asked for are there.
    pub creation: Duration,
    /// Without a byte either way.
    pub idle: Duration,
    /// Until the other end has read all and closes.
    pub finish: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self { creation: Duration::from_secs(30), idle: minutes(4 * 60), finish: minutes(15) }
    }
}

/// What a copy or a pipe holds.
const BUFFER: usize = 32 * 1024;
