//! Listening on all addresses of both families.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

const BACKLOG: u32 = 1024;

/// Listens at an address. `0.0.0.0` stands for all addresses of both families, as in upstream's components.
pub(crate) async fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    if at.ip() != Ipv4Addr::UNSPECIFIED {
        return TcpListener::bind(at).await;
    }
    match dual_stack(at.port()) {
        // Another process uses the port in one of the families.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        // The kernel has no IPv6.
        Err(_) => TcpListener::bind(at).await,
        listening => listening,
    }
}

fn dual_stack(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = listen(SocketAddr::from(([0, 0, 0, 0], 0))).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for address in ["127.0.0.1", "::1"] {
            let to = SocketAddr::new(address.parse().unwrap(), port);
            let (connected, accepted) = tokio::join!(TcpStream::connect(to), listener.accept());
            assert_eq!(accepted.unwrap().1.ip().to_canonical(), to.ip());
            drop(connected.unwrap());
        }
        let error = listen(SocketAddr::from(([0, 0, 0, 0], port))).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
