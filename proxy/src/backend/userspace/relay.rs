//! Sockets that copy bytes between clients and endpoints.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stdx::sync::Mutex;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use super::balancer::Balancer;
use crate::model::Protocol;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Open connections of one socket.
const MOST_CONNECTIONS: usize = 16 * 1024;
/// Clients of one UDP socket at a time.
const MOST_CLIENTS: usize = 4096;
/// A UDP client that sends nothing and gets nothing for this long has finished.
const UDP_IDLE: Duration = Duration::from_secs(30);
const DATAGRAM_BYTES: usize = 64 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket of the proxy, which is closed when this is dropped; connections that it has accepted go on.
pub(super) struct Relay {
    /// The target of redirect rules.
    pub(super) address: SocketAddr,
    balancer: Arc<Mutex<Balancer>>,
    task: AbortHandle,
}

impl Relay {
    /// Opens a socket at a port that the kernel chooses.
    pub(super) fn open(runtime: &Runtime, address: IpAddr, protocol: Protocol) -> io::Result<Relay> {
        let balancer: Arc<Mutex<Balancer>> = Arc::default();
        let at = SocketAddr::new(address, 0);
        let _context = runtime.enter();
        if protocol == Protocol::Udp {
            let socket = std::net::UdpSocket::bind(at)?;
            socket.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(socket)?;
            let address = socket.local_addr()?;
            let task = runtime.spawn(relay_datagrams(socket, balancer.clone())).abort_handle();
            return Ok(Relay { address, balancer, task });
        }
        let listener = std::net::TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let task = runtime.spawn(accept(listener, balancer.clone())).abort_handle();
        Ok(Relay { address, balancer, task })
    }

    pub(super) fn set_endpoints(&self, endpoints: &[SocketAddr], affinity: Option<Duration>) {
        self.balancer.lock().set_endpoints(endpoints, affinity);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, balancer: Arc<Mutex<Balancer>>) {
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                let balancer = balancer.clone();
                tokio::spawn(async move {
                    // A side that closes early is no failure.
                    let _ = copy(stream, client.ip(), &balancer).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn copy(mut client: TcpStream, from: IpAddr, balancer: &Mutex<Balancer>) -> io::Result<()> {
    let mut endpoint = connect(from, balancer).await?;
    client.set_nodelay(true)?;
    endpoint.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut endpoint).await?;
    Ok(())
}

/// Connects to the next endpoint that accepts.
async fn connect(client: IpAddr, balancer: &Mutex<Balancer>) -> io::Result<TcpStream> {
    let tries = balancer.lock().len();
    let mut last = io::Error::from(io::ErrorKind::ConnectionRefused);
    for _ in 0..tries {
        let picked = balancer.lock().pick(client, Instant::now());
        let Some(endpoint) = picked else { break };
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
        balancer.lock().forget(client);
    }
    Err(last)
}

/// The connection on which the datagrams of a client are sent to an endpoint.
struct Session {
    endpoint: SocketAddr,
    socket: Arc<UdpSocket>,
    used: Arc<Mutex<Instant>>,
    replies: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.replies.abort();
    }
}

async fn relay_datagrams(socket: UdpSocket, balancer: Arc<Mutex<Balancer>>) {
    let socket = Arc::new(socket);
    let mut sessions: HashMap<SocketAddr, Session> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Finished tasks leave nothing to read.
        while tasks.try_join_next().is_some() {}
        if sessions.len() >= MOST_CLIENTS {
            sessions.retain(|_, session| session.used.lock().elapsed() < UDP_IDLE);
        }
        let is_usable = |session: &Session| balancer.lock().has(session.endpoint);
        if !sessions.get(&client).is_some_and(is_usable) {
            sessions.remove(&client);
            if sessions.len() >= MOST_CLIENTS {
                continue;
            }
            match open_session(&socket, client, &balancer, &mut tasks).await {
                Some(session) => drop(sessions.insert(client, session)),
                None => continue,
            }
        }
        if let Some(session) = sessions.get(&client) {
            *session.used.lock() = Instant::now();
            // A datagram may be lost.
            let _ = session.socket.send(&buffer[..length]).await;
        }
    }
}

async fn open_session(
    socket: &Arc<UdpSocket>,
    client: SocketAddr,
    balancer: &Mutex<Balancer>,
    tasks: &mut JoinSet<()>,
) -> Option<Session> {
    let endpoint = balancer.lock().pick(client.ip(), Instant::now())?;
    let any = match endpoint {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let to_endpoint = UdpSocket::bind(any).await.ok()?;
    to_endpoint.connect(endpoint).await.ok()?;
    let to_endpoint = Arc::new(to_endpoint);
    let used = Arc::new(Mutex::new(Instant::now()));
    let replies = tasks.spawn(send_replies(socket.clone(), client, to_endpoint.clone(), used.clone()));
    Some(Session { endpoint, socket: to_endpoint, used, replies })
}

/// Until the client has finished.
async fn send_replies(socket: Arc<UdpSocket>, client: SocketAddr, from: Arc<UdpSocket>, used: Arc<Mutex<Instant>>) {
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        match tokio::time::timeout(UDP_IDLE, from.recv(&mut buffer)).await {
            Ok(Ok(length)) => {
                *used.lock() = Instant::now();
                let _ = socket.send_to(&buffer[..length], client).await;
            }
            Ok(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
            Err(_) if used.lock().elapsed() >= UDP_IDLE => return,
            Err(_) => {}
        }
    }
}
