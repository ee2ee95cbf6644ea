//! Port forwarding with the crate's own client.

use std::sync::Arc;

use streaming::Transport::{self, Spdy, WebSocket};
use streaming::port_forward::{Forwarder, SPDY_PREFERRED, TUNNEL_PREFERRED};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::server::{start, upgrade, within};

const PATH: &str = "/api/v1/namespaces/default/pods/web/portforward";

/// Echoes its input after the client has finished: requires half-close.
pub async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut question = Vec::new();
                socket.read_to_end(&mut question).await.unwrap();
                socket.write_all(&question).await.unwrap();
            });
        }
    });
    port
}

async fn forwarder(port: u16, transport: Transport) -> Forwarder {
    let preferred = if transport == Spdy { SPDY_PREFERRED } else { TUNNEL_PREFERRED };
    let (_, io) = upgrade(port, transport, PATH, preferred).await;
    Forwarder::new(io, transport)
}

#[tokio::test]
async fn connections_end_independently() {
    let (port, target) = (start().await, echo().await);
    for transport in [Spdy, WebSocket] {
        let forwarder = Arc::new(forwarder(port, transport).await);
        let mut connections = JoinSet::new();
        for number in 0..20u32 {
            let forwarder = forwarder.clone();
            connections.spawn(async move {
                let (mut data, outcome) = forwarder.connect(target).await.unwrap().split();
                let question = number.to_be_bytes().repeat(50_000);
                let mut answer = Vec::new();
                data.write_all(&question).await.unwrap();
                data.shutdown().await.unwrap();
                data.read_to_end(&mut answer).await.unwrap();
                assert!(answer == question);
                drop(data);
                outcome.await.unwrap();
            });
        }
        within(connections.join_all()).await;
    }
}

#[tokio::test]
async fn closed_ports_fail_only_their_connection() {
    let (port, target) = (start().await, echo().await);
    let forwarder = forwarder(port, Spdy).await;
    let (data, outcome) = within(forwarder.connect(1)).await.unwrap().split();
    let message = within(outcome).await.unwrap_err().to_string();
    assert!(message.starts_with("error forwarding port 1 to pod: Connection refused"), "{message}");
    drop(data);
    let (mut data, _) = within(forwarder.connect(target)).await.unwrap().split();
    data.write_all(b"still").await.unwrap();
    data.shutdown().await.unwrap();
    let mut answer = String::new();
    within(data.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "still");
}

#[tokio::test]
async fn refuses_invalid_ports() {
    let port = start().await;
    let forwarder = forwarder(port, Spdy).await;
    assert!(within(forwarder.connect(0)).await.is_err());
}

#[tokio::test]
async fn websocket_channels_start_with_their_port() {
    use streaming::websocket::{Event, Opcode, Role, split};
    let (port, target) = (start().await, echo().await);
    let (_, io) = upgrade(port, WebSocket, &format!("{PATH}?port={target},1"), &["v4.channel.k8s.io"]).await;
    let (read, write) = tokio::io::split(io);
    let (mut receiver, sender) = split(read, write, Role::Client);
    let mut seen = vec![Vec::new(); 4];
    let mut channel = 0;
    within(async {
        while seen[3].len() < 3 || seen[..3].iter().any(|bytes: &Vec<u8>| bytes.len() < 2) {
            let Event::Data { data, first, .. } = receiver.next().await.unwrap().unwrap() else { panic!("closed") };
            let data = if first {
                channel = usize::from(data[0]);
                data.slice(1..)
            } else {
                data
            };
            seen[channel].extend_from_slice(&data);
        }
    })
    .await;
    let [low, high] = target.to_le_bytes();
    assert_eq!(seen[..3], [vec![low, high], vec![low, high], vec![1, 0]]);
    assert_eq!(seen[3][..2], [1, 0]);
    assert!(String::from_utf8_lossy(&seen[3][2..]).starts_with("error forwarding port 1"));
    sender.send(Opcode::Close, &[]).await.unwrap();
}
