//! Queries by TCP: several on a connection, answered as soon as each is ready (RFC 7766).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::Shared;
use super::handler::{self, Packet, PacketAction};
use super::udp::QueryGuard;
use crate::metrics::Transport;

/// A connection without a query for so long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// How long the rest of a query, or the client to take a response, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Responses of a connection that are not written yet; no query is read beyond.
const MAX_PIPELINED: usize = 32;
/// A source that sends too many queries is read again after this.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves a listener until it is closed.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, port: u16, mut closed: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, source)) => accept(stream, source, &shared, port, closed.clone()),
            // No descriptor is left: wait for one.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn accept(stream: TcpStream, source: SocketAddr, shared: &Arc<Shared>, port: u16, mut closed: watch::Receiver<bool>) {
    if !shared.sources.acquire_connection(source.ip(), Instant::now()) {
        return;
    }
    let held = ConnectionGuard { shared: shared.clone(), source };
    tokio::spawn(async move {
        let connection = async {
            let Ok(local) = stream.local_addr() else { return };
            let _ = stream.set_nodelay(true);
            let (reader, writer) = stream.into_split();
            let (responses, to_write) = mpsc::channel(MAX_PIPELINED);
            let read = Connection { shared: held.shared.clone(), source: held.source, local, port, responses };
            tokio::join!(read.read(reader), write(writer, to_write));
        };
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => {}
            () = connection => {}
        }
    });
}

/// A connection; it counts until it is dropped.
struct ConnectionGuard {
    shared: Arc<Shared>,
    source: SocketAddr,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.shared.sources.release_connection(self.source.ip());
    }
}

struct Connection {
    shared: Arc<Shared>,
    source: SocketAddr,
    local: SocketAddr,
    port: u16,
    responses: mpsc::Sender<Vec<u8>>,
}

impl Connection {
    /// Reads queries until the client closes, or is silent for too long.
    async fn read(self, mut reader: OwnedReadHalf) {
        let mut bytes = Vec::new();
        while let Ok(Ok(length)) = timeout(IDLE, reader.read_u16()).await {
            bytes.resize(usize::from(length), 0);
            if !matches!(timeout(PATIENCE, reader.read_exact(&mut bytes)).await, Ok(Ok(_))) {
                return;
            }
            while !self.shared.sources.allows(self.source.ip(), Transport::Tcp, Instant::now()) {
                tokio::time::sleep(PAUSE).await;
            }
            if !self.receive(&bytes).await {
                return;
            }
        }
    }

    /// Whether the connection goes on.
    async fn receive(&self, bytes: &[u8]) -> bool {
        // The place of the response is taken first, so that a client that does not read is not served further.
        let Ok(place) = self.responses.clone().reserve_owned().await else { return false };
        let (source, local, port) = (self.source, self.local, self.port);
        match handler::parse(&Packet { bytes, source, local, transport: Transport::Tcp, port }) {
            PacketAction::Ignored => return false,
            PacketAction::Done(response) => drop(place.send(response)),
            PacketAction::Query(query) => {
                if !self.shared.sources.acquire_query(source.ip(), Instant::now()) {
                    return false;
                }
                let held = QueryGuard { shared: self.shared.clone(), source };
                tokio::spawn(async move {
                    place.send(handler::respond(held.shared.clone(), query, port).await);
                });
            }
        }
        true
    }
}

async fn write(mut writer: OwnedWriteHalf, mut responses: mpsc::Receiver<Vec<u8>>) {
    while let Some(response) = responses.recv().await {
        let length = u16::try_from(response.len()).unwrap_or(u16::MAX).to_be_bytes();
        let bytes = [&length[..], &response].concat();
        if !matches!(timeout(PATIENCE, writer.write_all(&bytes)).await, Ok(Ok(()))) {
            return;
        }
    }
}
