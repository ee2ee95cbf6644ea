//! How many connections the clients of the local listener may have. Every process of the machine can connect, also pods in
//! the host's network; none of them may keep the node's own components from the API server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use network::netlink::SocketOwner;
use stdx::sync::Mutex;

/// Of all clients together. More connections are closed.
const TOTAL: usize = 1024;
/// Of all processes except this one.
const OTHERS: usize = 768;
/// Of the processes of one user. Those of root include the CNI plugins.
const PER_USER: usize = 256;

/// Who has a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// The kubelet, the service proxy and the DNS of this process.
    Own,
    User(u32),
    /// The kernel cannot report owners of sockets.
    Unknown,
}

impl Peer {
    /// The owner of the other end of an accepted connection; None if the client has closed it.
    pub(super) fn of(client: SocketAddr, listener: SocketAddr) -> Option<Peer> {
        match SocketOwner::of_tcp(client, listener) {
            Ok(owner) => owner.map(|owner| if is_own(owner) { Peer::Own } else { Peer::User(owner.uid) }),
            Err(error) => {
                tracing::debug!(%error, "failed to find the owner of a connection");
                Some(Peer::Unknown)
            }
        }
    }
}

fn is_own(owner: SocketOwner) -> bool {
    if owner.uid != rustix::process::getuid().as_raw() {
        return false;
    }
    let name = format!("socket:[{}]", owner.inode);
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return false };
    descriptors.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == Path::new(&name)))
}

/// The connections of each client.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<BTreeMap<Peer, usize>>);

impl Seats {
    /// Counts a connection until the seat is dropped; None if the client has too many.
    pub(super) fn admit(self: &Arc<Seats>, peer: Peer) -> Option<Seat> {
        let mut counts = self.0.lock();
        let total: usize = counts.values().sum();
        let others = total - counts.get(&Peer::Own).copied().unwrap_or(0);
        let count = counts.entry(peer).or_default();
        if total >= TOTAL || (peer != Peer::Own && (others >= OTHERS || *count >= PER_USER)) {
            return None;
        }
        *count += 1;
        Some(Seat { seats: self.clone(), peer })
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    peer: Peer,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.seats.0.lock();
        match counts.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.peer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn no_user_takes_the_seats_of_the_own_components() {
        let seats = Arc::new(Seats::default());
        let fill = |peer: Peer| std::iter::from_fn(|| seats.admit(peer)).collect::<Vec<Seat>>();
        let mut held = Vec::new();
        for (peer, want) in
            [(Peer::User(0), PER_USER), (Peer::User(7), PER_USER), (Peer::Unknown, PER_USER), (Peer::User(9), 0)]
        {
            let seats = fill(peer);
            assert_eq!(seats.len(), want, "{peer:?}");
            held.extend(seats);
        }
        let own = fill(Peer::Own);
        assert_eq!(own.len(), TOTAL - OTHERS);
        drop(held);
        assert_eq!(fill(Peer::Own).len(), OTHERS, "the seats return");
        drop(own);
        assert_eq!(fill(Peer::User(9)).len(), PER_USER);
        assert!(fill(Peer::User(9)).len() == PER_USER && seats.0.lock().values().all(|count| *count == 0));
    }

    #[test]
    fn knows_connections_of_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let client = TcpStream::connect(at).expect("a connection");
        let end = client.local_addr().expect("an address");
        assert_eq!(Peer::of(end, at), Some(Peer::Own));
        drop(client);
        assert_eq!(Peer::of(end, at), None);
        let uid = rustix::process::getuid().as_raw();
        assert!(!is_own(SocketOwner { uid, inode: u32::MAX }));
    }
}
