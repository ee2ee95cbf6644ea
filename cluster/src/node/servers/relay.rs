//! The local listener of a node: the kubelet, the service proxy, the DNS and CNI plugins connect to it as if it were the
//! API server. Bytes are passed on unchanged, so that TLS is end to end: the listener has no credentials, and its clients
//! verify the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::balancer::{Balancer, ConnectionGuard, Outcome};
use super::seats::{Peer, Seats};

/// The port if it is free, as k3s has it.
const PORT: u16 = 6444;
/// A server that does not accept a connection in this time is left for the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The last candidate gets more time: it may only be far away.
const LAST_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may still send after the server has closed its side.
const HALF_OPEN: Duration = Duration::from_secs(1);
/// A client that reads nothing of what the server has sent for this long is disconnected.
const STALL: Duration = Duration::from_secs(60);
const BUFFER_BYTES: usize = 16 << 10;
/// After a failure to accept.
const PAUSE: Duration = Duration::from_millis(50);

/// Listens on the loopback interface, at the usual port or at a free one.
pub(super) async fn listen() -> io::Result<TcpListener> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match TcpListener::bind(SocketAddr::new(loopback, PORT)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => TcpListener::bind(SocketAddr::new(loopback, 0)).await,
        listening => listening,
    }
}

/// Accepts connections until it is stopped.
pub(super) async fn run(listener: TcpListener, balancer: Arc<Balancer>, mut stopped: watch::Receiver<bool>) {
    let seats = Arc::new(Seats::default());
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, address)) => {
                let peer = client.local_addr().ok().and_then(|listener| Peer::of(address, listener));
                let Some(seat) = peer.and_then(|peer| seats.admit(peer)) else { continue };
                let (balancer, mut stopped) = (balancer.clone(), stopped.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = stopped.wait_for(|stopped| *stopped) => {}
                        () = relay(client, &balancer) => {}
                    }
                    drop(seat);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection for the API server");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn relay(mut client: TcpStream, balancer: &Balancer) {
    let Some((mut server, mut guard)) = connect(balancer).await else { return };
    let _ = client.set_nodelay(true);
    tokio::select! {
        () = guard.cut() => {}
        copied = copy_both(&mut client, &mut server) => {
            if let Err(error) = copied {
                tracing::debug!(%error, "connection to the API server ended");
            }
        }
    }
}

/// Passes bytes on until the server has closed its side. A client that then neither sends nor closes would otherwise keep
/// the connection for ever.
async fn copy_both(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let (mut from_client, to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let requests = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let responses = copy_responses(from_server, to_client);
    tokio::pin!(requests, responses);
    tokio::select! {
        copied = &mut responses => {
            copied?;
            tokio::time::timeout(HALF_OPEN, requests).await.unwrap_or(Ok(()))
        }
        copied = &mut requests => {
            copied?;
            responses.await
        }
    }
}

async fn copy_responses(mut server: ReadHalf<'_>, mut client: WriteHalf<'_>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = server.read(&mut buffer).await?;
        if count == 0 {
            return client.shutdown().await;
        }
        tokio::time::timeout(STALL, client.write_all(&buffer[..count])).await??;
    }
}

/// A connection to the first server that accepts one.
async fn connect(balancer: &Balancer) -> Option<(TcpStream, ConnectionGuard)> {
    let candidates = balancer.candidates();
    for (at, address) in candidates.iter().enumerate() {
        let timeout = if at + 1 == candidates.len() { LAST_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
        match tokio::time::timeout(timeout, http_client::dial(&address.host, address.port)).await {
            Ok(Ok(server)) => {
                if let Some(guard) = balancer.connected(address) {
                    return Some((server, guard));
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(server = %address, %error, "failed to connect to the API server");
                balancer.report(address, Outcome::Refused);
            }
            Err(_) => drop(balancer.report(address, Outcome::TimedOut)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stdx::wait::until_await;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::list::ServerAddress;
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// A server that sends its number and then echoes.
    async fn server(number: u8) -> (ServerAddress, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let _ = stream.write_all(&[number]).await;
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        (ServerAddress { host: "127.0.0.1".to_string(), port }, task)
    }

    async fn connect_to(port: u16) -> Option<(TcpStream, u8)> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let mut number = [0];
        stream.read_exact(&mut number).await.ok()?;
        Some((stream, number[0]))
    }

    /// A server that closes its side of each connection at once, and keeps the other one.
    async fn closing_server() -> ServerAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.shutdown().await;
                held.push(stream);
            }
        });
        ServerAddress { host: "127.0.0.1".to_string(), port }
    }

    #[tokio::test]
    async fn a_silent_client_loses_its_connection_when_the_server_closes() {
        let balancer = Balancer::new("n", &BTreeSet::from([closing_server().await]));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let _silent = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (client, _) = listener.accept().await.expect("the other end");
        tokio::time::timeout(DEADLINE, relay(client, &balancer)).await.expect("the relay ends");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_loses_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let mut sender = TcpStream::connect(at).await.expect("a connection");
        let (mut server, _) = listener.accept().await.expect("the other end");
        let _idle = TcpStream::connect(at).await.expect("a connection");
        let (mut client, _) = listener.accept().await.expect("the other end");
        let endless = tokio::spawn(async move { while sender.write_all(&[0; 1 << 16]).await.is_ok() {} });
        let error = copy_both(&mut client, &mut server).await.expect_err("the client is stalled");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        endless.abort();
    }

    #[tokio::test]
    async fn connections_leave_a_dead_server() {
        let ((first, first_task), (second, second_task)) = (server(1).await, server(2).await);
        let balancer = Arc::new(Balancer::new("n", &BTreeSet::from([first.clone(), second.clone()])));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(run(listener, balancer.clone(), stopped));
        let (mut stream, number) = connect_to(port).await.expect("a connection");
        stream.write_all(b"hello").await.expect("sent");
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.expect("received");
        assert_eq!(&echo, b"hello");
        let (used, other, used_task, other_task) = match number {
            1 => (first, second, first_task, second_task),
            _ => (second, first, second_task, first_task),
        };
        // The server stalls: its connections stay open, and only probes notice it.
        balancer.report(&other, Outcome::Ready);
        balancer.report(&used, Outcome::TimedOut);
        balancer.report(&used, Outcome::TimedOut);
        let ended = tokio::time::timeout(DEADLINE, stream.read(&mut echo)).await.expect("in time");
        assert!(!matches!(ended, Ok(count) if count > 0), "the connection is cut");
        let (_open, now) = connect_to(port).await.expect("a connection");
        assert_ne!(now, number);
        // It is killed, and no server is left; then one comes back.
        other_task.abort();
        used_task.abort();
        let is_refused = async || connect_to(port).await.is_none();
        until_await("no server", DEADLINE, is_refused).await;
        let (again, _task) = server(3).await;
        balancer.set_servers(&BTreeSet::from([again]));
        let is_there = async || connect_to(port).await.is_some_and(|(_, number)| number == 3);
        until_await("another server", DEADLINE, is_there).await;
        stop.send_replace(true);
        running.await.expect("it ends");
    }
}
