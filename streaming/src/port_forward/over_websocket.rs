//! The port forwarding server over WebSocket channels: two per port for data and errors. Each starts with the port in
//! little-endian.

use std::fmt::Display;

use tokio::task::JoinSet;

use super::Connection;
use crate::Timeouts;
use crate::channels::{Codec, Demux, pipe, pump, send};
use crate::idle::IdleTimeout;
use crate::websocket::{CLOSE_NORMAL, Role, split};

pub(super) async fn serve<IO, F, Fut, E>(io: IO, protocol: &str, ports: Vec<u16>, timeouts: Timeouts, forward: F)
where
    IO: crate::Connection,
    F: Fn(u16, Connection) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let codec = if protocol.contains("base64.") { Codec::Base64 } else { Codec::Raw };
    let (read, write) = tokio::io::split(IdleTimeout::new(io, timeouts.idle));
    let (mut receiver, sender) = split(read, write, Role::Server);
    let mut connections = JoinSet::new();
    let mut sinks = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let (data, error) = (index as u8 * 2, index as u8 * 2 + 1);
        for channel in [data, error] {
            if send(&sender, codec, channel, &port.to_le_bytes()).await.is_err() {
                return;
            }
        }
        // Separate pipes for both directions, so that each can end alone.
        let (near, far) = pipe();
        let (incoming, sink) = pipe();
        sinks.extend([Some(sink), None]);
        let pumping = {
            let sender = sender.clone();
            async move { pump(far, &sender, codec, data).await }
        };
        let (forward, sender) = (forward.clone(), sender.clone());
        connections.spawn(async move {
            let connection = Box::new(tokio::io::join(incoming, near));
            let (result, _) = tokio::join!(forward(port, connection), pumping);
            if let Err(failure) = result {
                let _ = send(&sender, codec, error, failure.to_string().as_bytes()).await;
            }
        });
    }
    let demux = Demux { codec, half_close: false, sinks };
    let mut receiving = JoinSet::new();
    receiving.spawn(async move { demux.run(&mut receiver).await });
    while connections.join_next().await.is_some() {}
    let _ = sender.close(CLOSE_NORMAL, "").await;
    let _ = tokio::time::timeout(timeouts.finish, receiving.join_next()).await;
}
