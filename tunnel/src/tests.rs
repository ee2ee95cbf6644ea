use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

/// Allows one port of the loopback interface.
struct OnePort(u16);

impl TargetDialer for OnePort {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            match (host, port) {
                ("10.1.2.3", port) if port == self.0 => Ok(TcpStream::connect(("127.0.0.1", port)).await?),
                ("10.1.2.3", 1) => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
                _ => Err(Refusal::Forbidden),
            }
        })
    }
}

/// A server that echoes.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

async fn open(port: u16) -> (Tunnel, tokio::task::JoinHandle<()>) {
    let (node, server) = duplex(64 << 10);
    let serving = tokio::spawn(async move {
        let _ = serve(node, Arc::new(OnePort(port))).await;
    });
    (Tunnel::open(server).await.expect("a tunnel"), serving)
}

async fn exchange(stream: &mut TunnelStream, text: &[u8]) -> Vec<u8> {
    stream.write_all(text).await.expect("sent");
    let mut received = vec![0; text.len()];
    tokio::time::timeout(DEADLINE, stream.read_exact(&mut received)).await.expect("in time").expect("received");
    received
}

#[tokio::test]
async fn connections_are_multiplexed() {
    let port = echo().await;
    let (tunnel, _serving) = open(port).await;
    let mut first = tunnel.connect("10.1.2.3", port).await.expect("a connection");
    let mut second = tunnel.connect("10.1.2.3", port).await.expect("a connection");
    assert_eq!(exchange(&mut second, b"two").await, b"two");
    assert_eq!(exchange(&mut first, b"one").await, b"one");
    // The end of one direction is passed on, and the rest is received.
    first.write_all(b"last").await.expect("sent");
    first.shutdown().await.expect("closed");
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, first.read_to_end(&mut rest)).await.expect("in time").expect("received");
    assert_eq!(rest, b"last");
}

#[tokio::test]
async fn a_stream_that_is_not_read_stalls_alone() {
    let port = echo().await;
    let (tunnel, _serving) = open(port).await;
    let mut stalled = tunnel.connect("10.1.2.3", port).await.expect("a connection");
    let mut working = tunnel.connect("10.1.2.3", port).await.expect("a connection");
    // Far more than all buffers: the writer has to wait, since no echo is read.
    let writing = tokio::spawn(async move {
        let block = vec![7; 1 << 20];
        for _ in 0..64 {
            stalled.write_all(&block).await.expect("sent");
        }
        stalled
    });
    for _ in 0..20 {
        assert_eq!(exchange(&mut working, &[1; 10_000]).await, vec![1; 10_000]);
    }
    assert!(!writing.is_finished(), "flow control holds it back");
    writing.abort();
}

#[tokio::test]
async fn the_node_refuses_other_targets() {
    let port = echo().await;
    let (tunnel, serving) = open(port).await;
    assert!(matches!(tunnel.connect("127.0.0.1", port).await, Err(TunnelError::Forbidden(_))));
    assert!(matches!(tunnel.connect("10.1.2.3", 22).await, Err(TunnelError::Forbidden(_))));
    assert!(matches!(tunnel.connect("10.1.2.3", 1).await, Err(TunnelError::Unreachable(_))));
    assert!(matches!(tunnel.connect("a b", 1).await, Err(TunnelError::Target(_))));
    tunnel.connect("10.1.2.3", port).await.expect("the tunnel goes on");
    serving.abort();
    stdx::wait::until_await("the tunnel is closed", DEADLINE, async || tunnel.is_closed()).await;
    assert!(tunnel.connect("10.1.2.3", port).await.is_err());
}
