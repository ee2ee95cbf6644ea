//! The addresses at which an API server of this machine is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

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
/// address of the default route, that of IPv4 before that of IPv6.
pub(crate) fn advertised(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() && !listen.is_loopback() {
        return listen;
    }
    [true, false].into_iter().find_map(default_route_address).unwrap_or_else(|| reachable(listen))
}

/// The addresses of this machine for these families, in their order; at least one. An address on which the server
/// listens is that of its family.
pub(crate) fn of_families(listen: IpAddr, are_ipv4: impl Iterator<Item = bool>) -> Vec<IpAddr> {
    let is_usable = !listen.is_unspecified() && !listen.is_loopback();
    let of_family = |is_ipv4: bool| {
        let own = Some(listen).filter(|listen| is_usable && listen.is_ipv4() == is_ipv4);
        own.or_else(|| default_route_address(is_ipv4))
    };
    let found: Vec<IpAddr> = are_ipv4.filter_map(of_family).collect();
    if found.is_empty() { vec![advertised(listen)] } else { found }
}

/// The source address of the default route of a family. Connecting a datagram socket sends nothing.
fn default_route_address(is_ipv4: bool) -> Option<IpAddr> {
    let any: IpAddr = if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((elsewhere(is_ipv4), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// An address that is reserved for documentation: packets to it follow the default route, if there is one.
pub(crate) fn elsewhere(is_ipv4: bool) -> IpAddr {
    match is_ipv4 {
        true => Ipv4Addr::new(192, 0, 2, 1).into(),
        false => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_server_is_that_of_its_family() {
        let (listen, other) = (IpAddr::from([198, 51, 100, 7]), "fd00::7".parse().unwrap());
        assert_eq!(of_families(listen, [true].into_iter()), [listen]);
        assert_eq!(of_families(other, [false].into_iter()), [other]);
        assert_eq!(of_families(listen, [true, false].into_iter())[0], listen);
        assert_eq!(of_families(listen, [].into_iter()), [listen]);
    }
}
