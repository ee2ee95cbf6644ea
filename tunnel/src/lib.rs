//! Connections in the reverse direction: a node that no server can reach keeps a connection to each server, through which
//! servers connect to it. After the upgrade of an HTTP/1.1 connection the roles change: the server sends HTTP/2 CONNECT
//! requests, and the node accepts or refuses each target. Streams, flow control and pings are those of HTTP/2.
//!
//! This crate knows neither Kubernetes nor credentials: who may open a tunnel, and which targets a node accepts, is
//! decided by its callers.

#![warn(unreachable_pub)]

mod node;
mod server;

pub use node::{DialFuture, Refusal, TargetDialer, serve};
pub use server::{Tunnel, TunnelError, TunnelStream};

use std::time::Duration;

/// The protocol of the upgrade.
pub const PROTOCOL: &str = "tiphys-tunnel";
/// The path of the API server at which tunnels are opened.
pub const PATH: &str = "/tiphys/v1/tunnel";

/// Pings on an idle tunnel, so that both sides notice when the other one is gone, and routers keep the connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// What one stream may send before it is read, and all of them together: a stream that is not read stalls alone.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Streams of a tunnel at the same time.
const MAX_STREAMS: u32 = 512;

#[cfg(test)]
mod tests;
