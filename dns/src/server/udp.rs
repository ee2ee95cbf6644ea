//! Queries by UDP. Most are answered at once in the task that receives; those that wait for an upstream get a task.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::handler::{self, Packet, PacketAction};
use super::limits::Verdict;
use crate::metrics::Transport;

/// Queries are small; longer ones are cut, and malformed then.
const MAX_QUERY: usize = 4096;

/// After so many queries in a row, other sockets and tasks have their turn.
const FAIR_SHARE: u64 = 32;

/// Serves a socket until it is closed.
pub(super) async fn serve(socket: Arc<UdpSocket>, shared: Arc<Shared>, port: u16, mut closed: watch::Receiver<bool>) {
    let Ok(local) = socket.local_addr() else { return };
    let mut buffer = vec![0; MAX_QUERY];
    for count in 1_u64.. {
        if count.is_multiple_of(FAIR_SHARE) {
            tokio::task::yield_now().await;
        }
        let received = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        // An error is about an earlier response: its client has closed its socket.
        let Ok((length, source)) = received else { continue };
        let packet = Packet { bytes: &buffer[..length], source, local, transport: Transport::Udp, port };
        // One query must not end the answers to all others.
        if let Err(panic) = stdx::panic::catch(|| receive(&socket, &shared, &packet)) {
            shared.metrics.panics.inc();
            tracing::error!(%source, %panic, "query failed");
        }
    }
}

fn receive(socket: &Arc<UdpSocket>, shared: &Arc<Shared>, packet: &Packet) {
    let now = Instant::now();
    match shared.sources.check_packet(packet.source.ip(), Transport::Udp, now) {
        Verdict::Allowed => {}
        Verdict::Denied => return,
        Verdict::Flood => {
            if let Some(length) = shared.guard.block(packet.source.ip(), now) {
                shared.sources.drain(packet.source.ip(), now + length);
            }
            return;
        }
    }
    let query = match handler::parse(packet) {
        PacketAction::Ignored => return,
        PacketAction::Done(response) => return send(socket, response, packet.source),
        PacketAction::Query(query) => query,
    };
    let source = packet.source;
    let mut responding = Box::pin(handler::respond(shared.clone(), query, packet.port));
    // The first poll answers names of the cluster and the cache; nothing has to wake this task.
    match Pin::new(&mut responding).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => send(socket, response, source),
        Poll::Pending if shared.sources.acquire_query(source.ip(), now) => {
            let held = QueryGuard { shared: shared.clone(), source };
            let socket = socket.clone();
            tokio::spawn(async move {
                let response = responding.await;
                let _ = socket.send_to(&response, held.source).await;
            });
        }
        // Without an answer the client tries again.
        Poll::Pending => {}
    }
}

/// A query that waits; it counts until it is dropped.
pub(super) struct QueryGuard {
    pub shared: Arc<Shared>,
    pub source: SocketAddr,
}

impl Drop for QueryGuard {
    fn drop(&mut self) {
        self.shared.sources.release_query(self.source.ip());
    }
}

/// Sends at once, or when the socket can.
fn send(socket: &Arc<UdpSocket>, response: Vec<u8>, to: SocketAddr) {
    let sent = socket.try_send_to(&response, to);
    if sent.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
        let socket = socket.clone();
        tokio::spawn(async move {
            let _ = socket.send_to(&response, to).await;
        });
    }
}
