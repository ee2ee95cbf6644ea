//! The protocols for the streams of remote commands and port forwarding over one upgraded HTTP connection: both ends of
//! each, over WebSocket and SPDY. The crate handles bytes, channels and exit codes, and is independent of pods and
//! authorization.

#![warn(unreachable_pub)]

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
pub use upgrade::{Transport, UpgradeError, UpgradeRejection, accept_key, agreed, request_upgrade};

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection that can be moved to another task.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

/// A stream to read from.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// A stream to write to.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Timeouts of a streaming connection.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until the requested streams are created.
    pub creation: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Until the other end has read everything and closes.
    pub finish: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self { creation: Duration::from_secs(30), idle: minutes(4 * 60), finish: minutes(15) }
    }
}

/// The size of copy and pipe buffers.
const BUFFER: usize = 32 * 1024;
