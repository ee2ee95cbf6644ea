//! Filters connections before any byte is read.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

type FilterFn = dyn Fn(IpAddr, IpAddr) -> bool + Send + Sync;

/// Accepts or rejects a connection by its local address and its peer's; the default accepts all.
#[derive(Clone, Default)]
pub struct ConnectionFilter(Option<Arc<FilterFn>>);

impl ConnectionFilter {
    /// Accepts the connections for which `judge` returns true; its arguments are the addresses of both sides.
    pub fn new(judge: impl Fn(IpAddr, IpAddr) -> bool + Send + Sync + 'static) -> ConnectionFilter {
        ConnectionFilter(Some(Arc::new(judge)))
    }

    pub(crate) fn allows(&self, stream: &TcpStream) -> bool {
        let Some(judge) = &self.0 else { return true };
        match (stream.local_addr(), stream.peer_addr()) {
            (Ok(local), Ok(peer)) => judge(local.ip().to_canonical(), peer.ip().to_canonical()),
            _ => false,
        }
    }
}

impl fmt::Debug for ConnectionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Accepts").field(&self.0.is_some()).finish()
    }
}
