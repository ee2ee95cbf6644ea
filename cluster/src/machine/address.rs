//! The addresses at which an API server of this machine is reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// The URL for joining machines. They reach it only if the server listens on all addresses, or on one of the network.
pub(crate) fn joined_at(address: SocketAddr) -> String {
    let ip = if address.ip().is_unspecified() { advertised(address.ip()) } else { address.ip() };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// The address at which clients of this machine reach a server that listens here.
pub(crate) fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        // A dual-stack socket also accepts IPv4.
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        other => other,
    }
}

/// The address for other machines: if the server listens on all addresses or on the loopback address, the source
/// address of the default route. Connecting a datagram socket sends nothing.
pub(crate) fn advertised(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() && !listen.is_loopback() {
        return listen;
    }
    let way_out = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Reserved for documentation: any address that is not local will do.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    way_out().unwrap_or_else(|| reachable(listen))
}
