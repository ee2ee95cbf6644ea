//! Who owns a TCP socket of this machine, as the kernel's socket diagnosis reports it.

use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink;

use super::message::{Message, u32_of};
use super::socket::{Error, Socket};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const ALL_STATES: u32 = u32::MAX;
/// Matches a socket whatever its cookie is.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// The offsets in the kernel's `inet_diag_msg`.
const UID: usize = 64;
const INODE: usize = 68;

/// The owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// The user that created the socket.
    pub uid: u32,
    /// By which `/proc/PID/fd` names the socket.
    pub inode: u32,
}

impl SocketOwner {
    /// The owner of the TCP socket with these two ends, in the network namespace of the calling thread. None if there
    /// is no such socket, or no process has it any more.
    pub fn of_tcp(local: SocketAddr, remote: SocketAddr) -> Result<Option<SocketOwner>, Error> {
        let message = Message::new(SOCK_DIAG_BY_FAMILY, 0, &request(local, remote));
        let reply = Socket::open(Some(netlink::SOCK_DIAG))?.get("find the owner of a socket", message)?;
        let number = |payload: &[u8], at: usize| payload.get(at..).and_then(u32_of);
        let owner = reply.and_then(|reply| {
            Some(SocketOwner { uid: number(&reply.payload, UID)?, inode: number(&reply.payload, INODE)? })
        });
        // The kernel reports user 0 and inode 0 for a socket that was closed.
        Ok(owner.filter(|owner| owner.inode != 0))
    }
}

/// The kernel's `inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = match local.ip() {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let mut bytes = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    bytes.extend(ALL_STATES.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let start = bytes.len();
        match address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
        bytes.resize(start + 16, 0);
    }
    // Any interface.
    bytes.extend([0; 4]);
    bytes.extend(NO_COOKIE);
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    fn check(loopback: &str) {
        let listener = TcpListener::bind((loopback, 0)).expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (local, remote) = (client.local_addr().expect("one end"), client.peer_addr().expect("the other end"));
        let owner = SocketOwner::of_tcp(local, remote).expect("a reply").expect("a socket");
        let link = std::fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd())).expect("a link");
        assert_eq!(link.to_string_lossy(), format!("socket:[{}]", owner.inode));
        assert_eq!(owner.uid, rustix::process::getuid().as_raw());
        let other = SocketAddr::new(remote.ip(), 1);
        assert_eq!(SocketOwner::of_tcp(local, other).expect("a reply"), None);
        drop(client);
        assert_eq!(SocketOwner::of_tcp(local, remote).expect("a reply"), None, "it is closed");
    }

    #[test]
    fn finds_the_owner_of_a_connection() {
        check("127.0.0.1");
        check("::1");
    }
}
