//! By which addresses the node is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

/// Access to the host's network; tests have their own.
pub(crate) trait Host {
    /// Whether an address is one of this machine's.
    fn has(&self, address: IpAddr) -> bool;
    fn resolve_host(&self, name: &str) -> Vec<IpAddr>;
    /// The source address of the default route.
    fn default_route_address(&self, is_v6: bool) -> Option<IpAddr>;
}

/// A name server that does not respond must not delay the registration of the node.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct System {
    /// The node's addresses so far, which stay while its name cannot be resolved in time.
    pub(crate) known: Vec<IpAddr>,
}

impl Host for System {
    fn has(&self, address: IpAddr) -> bool {
        UdpSocket::bind((address, 0)).is_ok()
    }

    fn resolve_host(&self, name: &str) -> Vec<IpAddr> {
        let (sender, receiver) = mpsc::channel();
        let name = name.to_string();
        std::thread::spawn(move || {
            let found = (name.as_str(), 0).to_socket_addrs();
            // The receiver may have given up.
            let _ = sender.send(found.map(|found| found.map(|found| found.ip()).collect()).unwrap_or_default());
        });
        receiver.recv_timeout(RESOLVE_TIMEOUT).unwrap_or_else(|_| self.known.clone())
    }

    /// Connecting a datagram socket sends nothing. The addresses are reserved for documentation; any remote address
    /// would do.
    fn default_route_address(&self, is_v6: bool) -> Option<IpAddr> {
        let (any, far): (IpAddr, IpAddr) = match is_v6 {
            false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
            true => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}

/// Why the node has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("can't get ip address of node {0}. error: no default routes found")]
    NoRoute(String),
    #[error("failed to validate nodeIP: {0}")]
    Unusable(#[from] UnusableAddress),
}

/// Why a configured address cannot be the node's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnusableAddress {
    #[error("nodeIP can't be a multicast address")]
    Multicast,
    #[error("nodeIP can't be a link-local unicast address")]
    LinkLocal,
    #[error("node IP: {0:?} not found in the host's network interfaces")]
    NotLocal(String),
}

/// The configured addresses, or the address of the node's name, or the source address of the default route. An
/// unspecified address stands for one of its family.
pub(crate) fn addresses(
    host: &dyn Host,
    requested: &[IpAddr],
    name: &str,
    hostname: &str,
) -> Result<Vec<IpAddr>, AddressError> {
    if requested.is_empty() {
        let found = own(host, name, hostname, None);
        return found.map(|address| vec![address]).ok_or_else(|| missing(name));
    }
    let one = |address: &IpAddr| match address.is_unspecified() {
        true => own(host, name, hostname, Some(address.is_ipv6())).ok_or_else(|| missing(name)),
        false => usable(host, *address).map(|()| *address).map_err(AddressError::Unusable),
    };
    requested.iter().map(one).collect()
}

fn missing(name: &str) -> AddressError {
    AddressError::NoRoute(name.to_string())
}

/// IPv4 comes first unless a family is requested.
fn own(host: &dyn Host, name: &str, hostname: &str, is_v6: Option<bool>) -> Option<IpAddr> {
    let families = is_v6.map_or(vec![false, true], |is_v6| vec![is_v6]);
    let desired = |address: &IpAddr| families.contains(&address.is_ipv6());
    if let Some(address) = hostname.parse().ok().filter(desired) {
        return Some(address);
    }
    let known: Vec<IpAddr> = host.resolve_host(name).into_iter().filter(|address| is_far(*address)).collect();
    let of = |is_v6: &bool| known.iter().copied().find(|address| address.is_ipv6() == *is_v6 && host.has(*address));
    let named = families.iter().find_map(of);
    named.or_else(|| families.iter().find_map(|is_v6| host.default_route_address(*is_v6)).filter(desired))
}

/// Whether other machines can reach the address.
fn is_far(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_multicast() || address.is_unspecified() || is_link_local)
}

/// A configured address may be a loopback address, for machines without a network.
fn usable(host: &dyn Host, address: IpAddr) -> Result<(), UnusableAddress> {
    if address.is_multicast() {
        return Err(UnusableAddress::Multicast);
    }
    if !address.is_loopback() && !is_far(address) {
        return Err(UnusableAddress::LinkLocal);
    }
    if host.has(address) { Ok(()) } else { Err(UnusableAddress::NotLocal(address.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Host for Fixed {
        fn has(&self, address: IpAddr) -> bool {
            ["10.0.0.5", "10.0.0.9", "fd00::5", "127.0.0.1"].contains(&address.to_string().as_str())
        }

        fn resolve_host(&self, name: &str) -> Vec<IpAddr> {
            let found: &[&str] = match name {
                "named" => &["127.0.1.1", "192.168.9.9", "fd00::5", "10.0.0.9"],
                "six" => &["fd00::5"],
                _ => &["127.0.1.1"],
            };
            found.iter().map(|address| address.parse().expect("an address")).collect()
        }

        fn default_route_address(&self, is_v6: bool) -> Option<IpAddr> {
            (!is_v6).then(|| IpAddr::from([10, 0, 0, 5]))
        }
    }

    #[test]
    fn chooses_addresses_in_upstreams_order() {
        let cases = [
            ("", "named", "10.0.0.9"),
            ("", "six", "fd00::5"),
            ("", "unknown", "10.0.0.5"),
            ("", "10.1.1.1", "10.1.1.1"),
            ("10.0.0.5", "named", "10.0.0.5"),
            ("10.0.0.5,fd00::5", "named", "10.0.0.5 fd00::5"),
            ("::", "named", "fd00::5"),
            ("0.0.0.0,::", "named", "10.0.0.9 fd00::5"),
            ("127.0.0.1", "named", "127.0.0.1"),
            ("::", "unknown", "can't get ip address of node unknown. error: no default routes found"),
            (
                "10.0.0.7",
                "named",
                "failed to validate nodeIP: node IP: \"10.0.0.7\" not found in the host's network interfaces",
            ),
            ("224.0.0.1", "named", "failed to validate nodeIP: nodeIP can't be a multicast address"),
            ("169.254.0.1", "named", "failed to validate nodeIP: nodeIP can't be a link-local unicast address"),
        ];
        for (requested, name, want) in cases {
            let requested: Vec<IpAddr> = requested.split(',').filter_map(|address| address.parse().ok()).collect();
            let found = addresses(&Fixed, &requested, name, name);
            let found = found.map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(found.unwrap_or_else(|why| why.to_string()), want, "{requested:?} {name}");
        }
    }

    #[test]
    fn this_machine_has_its_own_address() {
        assert!(System::default().has(IpAddr::from([127, 0, 0, 1])));
        assert!(!System::default().has(IpAddr::from([192, 0, 2, 1])));
    }
}
