//! The outbound HTTP client of every component: TLS with its trusted CAs and certificates, connections, HTTP/1.1 and
//! HTTP/2, a connection pool, and bodies with a limit.
//!
//! Callers decide what differs between them: timeouts, retries, redirects, credentials, and the texts of errors.
//! Nothing here depends on Kubernetes.

#![warn(unreachable_pub)]

pub mod body;
pub mod connect;
pub mod pool;
pub mod protocol;
pub mod tls;

pub use connect::{Address, ConnectError, Stream, connect, dial};
pub use pool::{Pool, SendError};
pub use protocol::{handshake_http1, handshake_http2, send_once};
pub use tls::{Identity, PemError, Trust};
