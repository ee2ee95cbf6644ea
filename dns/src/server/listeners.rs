//! The open sockets of a server. Those that a new configuration still needs stay open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use stdx::sync::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Config, HttpEndpoints, Listen, Shared, StartError, http, tcp, udp};
use crate::corefile::Corefile;

/// The receive buffer of a socket: a burst of queries is not lost, nor those of others until a flood is noticed.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Sockets for an address; the kernel distributes the clients.
const MAX_SOCKETS: usize = 4;
/// Tries to find a port that is free for UDP and TCP.
const PORT_TRIES: usize = 20;

/// The purpose of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Queries for the server blocks of a port.
    Queries(u16),
    Http,
}

/// Sockets at an address.
struct Listener {
    /// The address of the socket, after the port was chosen.
    address: SocketAddr,
    close: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
pub(super) struct Listeners(Mutex<BTreeMap<(SocketAddr, Purpose), Listener>>);

/// The addresses of a configuration.
pub(super) fn desired(corefile: &Corefile, config: &Config) -> BTreeSet<(SocketAddr, Purpose)> {
    let mut desired = BTreeSet::new();
    for block in &corefile.blocks {
        let purpose = Purpose::Queries(block.port);
        match &config.listen {
            Listen::At(addresses) if block.port == config.default_port => {
                desired.extend(addresses.iter().map(|address| (*address, purpose)));
            }
            Listen::At(addresses) => {
                desired.extend(addresses.iter().map(|address| (SocketAddr::new(address.ip(), block.port), purpose)));
            }
            Listen::Corefile => {
                let any = [IpAddr::from(Ipv6Addr::UNSPECIFIED)];
                let bind = if block.bind.is_empty() { &any[..] } else { &block.bind };
                desired.extend(bind.iter().map(|ip| (SocketAddr::new(*ip, block.port), purpose)));
            }
        }
        let health = block.health.as_ref().map(|health| health.address);
        let addresses = [health, block.ready, block.prometheus].into_iter().flatten();
        let placed = addresses.filter_map(|address| match config.http {
            HttpEndpoints::Corefile => Some(address),
            HttpEndpoints::At(ip) => Some(SocketAddr::new(ip, address.port())),
            HttpEndpoints::Disabled => None,
        });
        desired.extend(placed.map(|address| (address, Purpose::Http)));
    }
    desired
}

impl Listeners {
    /// Opens what is missing. Nothing changes if one cannot be opened.
    pub(super) fn open(
        &self,
        shared: &Arc<Shared>,
        desired: &BTreeSet<(SocketAddr, Purpose)>,
    ) -> Result<(), StartError> {
        let missing: Vec<_> = desired.iter().filter(|key| !self.0.lock().contains_key(key)).collect();
        let mut opened = Vec::new();
        for (address, purpose) in missing {
            let listener = listen(shared, *address, *purpose);
            match listener {
                Ok(listener) => opened.push(((*address, *purpose), listener)),
                Err(source) => {
                    opened.iter().for_each(|(_, listener)| listener.abort());
                    return Err(StartError::Listen { address: *address, source });
                }
            }
        }
        self.0.lock().extend(opened);
        Ok(())
    }

    /// Closes what is not needed any more.
    pub(super) fn retain(&self, desired: &BTreeSet<(SocketAddr, Purpose)>) {
        self.0.lock().retain(|key, listener| {
            let is_kept = desired.contains(key);
            if !is_kept {
                listener.close.send_replace(true);
            }
            is_kept
        });
    }

    fn of(&self, is_http: bool) -> Vec<SocketAddr> {
        let listeners = self.0.lock();
        let selected = listeners.iter().filter(|((_, purpose), _)| (*purpose == Purpose::Http) == is_http);
        selected.map(|(_, listener)| listener.address).collect()
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.of(false)
    }

    pub(super) fn http_addresses(&self) -> Vec<SocketAddr> {
        self.of(true)
    }

    /// Closes all, and waits until they are.
    pub(super) async fn close(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for listener in all.values() {
            listener.close.send_replace(true);
        }
        for task in all.into_values().flat_map(|listener| listener.tasks) {
            let _ = task.await;
        }
    }

    pub(super) fn abort(&self) {
        std::mem::take(&mut *self.0.lock()).values().for_each(Listener::abort);
    }
}

impl Listener {
    fn abort(&self) {
        self.close.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn listen(shared: &Arc<Shared>, address: SocketAddr, purpose: Purpose) -> io::Result<Listener> {
    let (close, closed) = watch::channel(false);
    let Purpose::Queries(port) = purpose else {
        let listener = bind_tcp(address)?;
        let address = listener.local_addr()?;
        let tasks = vec![tokio::spawn(http::serve(listener, shared.clone(), closed))];
        return Ok(Listener { address, close, tasks });
    };
    let (tcp, sockets) = bind_both(address)?;
    let address = tcp.local_addr()?;
    let mut tasks = vec![tokio::spawn(tcp::serve(tcp, shared.clone(), port, closed.clone()))];
    for socket in sockets.into_iter().map(Arc::new) {
        shared.guard.add(&socket);
        tasks.push(tokio::spawn(udp::serve(socket, shared.clone(), port, closed.clone())));
    }
    Ok(Listener { address, close, tasks })
}

/// The same port for TCP and UDP. TCP is bound exclusively, so that two servers do not share an address unnoticed.
fn bind_both(address: SocketAddr) -> io::Result<(TcpListener, Vec<UdpSocket>)> {
    let tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    let mut last = None;
    for _ in 0..tries {
        let tcp = bind_tcp(address)?;
        match bind_udp(tcp.local_addr()?) {
            Ok(sockets) => return Ok((tcp, sockets)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

fn new_socket(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // All addresses means those of IPv4 too.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A machine without IPv6 has all addresses of IPv4.
fn or_ipv4<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let is_any = address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    bind(address).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        _ if is_any => bind(any),
        _ => Err(error),
    })
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    or_ipv4(address, |address| {
        let socket = new_socket(address, Type::STREAM, Protocol::TCP)?;
        // For connections of an earlier server that are closing.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        TcpListener::from_std(socket.into())
    })
}

fn bind_udp(address: SocketAddr) -> io::Result<Vec<UdpSocket>> {
    let count = tokio::runtime::Handle::current().metrics().num_workers().clamp(1, MAX_SOCKETS);
    let bind = |_| {
        let socket = new_socket(address, Type::DGRAM, Protocol::UDP)?;
        socket.set_reuse_port(true)?;
        // Beyond the machine's limit where that is allowed.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| socket.set_recv_buffer_size(RECEIVE_BUFFER))?;
        socket.bind(&address.into())?;
        UdpSocket::from_std(socket.into())
    };
    (0..count).map(bind).collect()
}
