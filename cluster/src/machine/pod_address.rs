//! The address at which pods of this machine reach an API server that otherwise listens on the loopback address only.
//! It is an address of the loopback device that no network routes to; connections from a network are rejected.

use std::net::{IpAddr, SocketAddr};

use network::netlink::{Error as NetlinkError, Link, Rtnl};
use tokio::net::TcpListener;

use crate::error::{Error, Result};
use crate::machine::address;
use crate::machine::loopback::LoopbackAddress;

/// The index of the loopback device, in every network namespace.
const LOOPBACK: u32 = 1;

/// The devices behind which the pods of this machine are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodDevices {
    /// Those of the built-in network.
    Named(Vec<String>),
    /// Those of another pod network, whose names are not known: devices whose other end is in a namespace of this
    /// machine, and bridges of them.
    Veths,
}

/// Adds the address and listens there, as long as the first result exists.
pub(crate) async fn listen(address: SocketAddr) -> Result<(LoopbackAddress, TcpListener)> {
    let failed = |error: NetlinkError| Error::Listen { address, source: std::io::Error::other(error.to_string()) };
    let added = LoopbackAddress::add(address.ip()).map_err(failed)?;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    Ok((added, listener))
}

/// Whether a connection to a local address may come from a peer: the machine itself and its pods may connect to the
/// address for pods.
pub(crate) fn accepts(devices: &PodDevices, for_pods: IpAddr, local: IpAddr, peer: IpAddr) -> bool {
    local != for_pods || is_on_machine(devices, peer).unwrap_or(false)
}

/// Whether the machine itself or one of its pods has an address, by the device to which packets to it are sent.
fn is_on_machine(devices: &PodDevices, peer: IpAddr) -> std::result::Result<bool, NetlinkError> {
    let mut rtnl = Rtnl::open()?;
    let Some(device) = rtnl.device_to(peer)? else { return Ok(false) };
    // Packets to addresses of the machine itself are sent to the loopback device.
    if device == LOOPBACK {
        return Ok(true);
    }
    let Some(link) = rtnl.link_at(device)? else { return Ok(false) };
    match devices {
        PodDevices::Named(names) => Ok(names.contains(&link.name)),
        PodDevices::Veths => {
            // Without a default route, the lookup fails.
            let mut is_default = |is_ipv4| rtnl.device_to(address::elsewhere(is_ipv4)).ok().flatten() == Some(device);
            Ok(!is_default(true) && !is_default(false) && leads_to_namespaces(&link, &rtnl.links()?))
        }
    }
}

/// Whether a device is an end of a pair, or a bridge that only has such ports. Tunnels, VLANs, bonds and hardware lead to
/// other machines.
fn leads_to_namespaces(link: &Link, links: &[Link]) -> bool {
    let is_pair = |link: &Link| matches!(link.kind.as_deref(), Some("veth" | "netkit"));
    let mut ports = links.iter().filter(|port| port.master == Some(link.index));
    match link.kind.as_deref() {
        Some("bridge") => ports.all(is_pair),
        _ => is_pair(link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_local_connections() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let for_pods = IpAddr::from([10, 42, 255, 254]);
        for devices in [PodDevices::Veths, PodDevices::Named(vec!["tiphys0".to_string()])] {
            let accepts = |local, peer| accepts(&devices, for_pods, local, peer);
            assert!(accepts(loopback, address::elsewhere(true)), "another address is not guarded");
            assert!(accepts(for_pods, loopback));
            assert!(accepts(for_pods, "::1".parse().unwrap()));
            assert!(!accepts(for_pods, address::elsewhere(true)));
            assert!(!accepts(for_pods, address::elsewhere(false)));
        }
    }

    #[test]
    fn tells_pods_from_other_machines_by_the_kind_of_device() {
        let link = |index: u32, kind: Option<&str>, master: Option<u32>| Link {
            index,
            name: format!("device{index}"),
            mac: [0; 6],
            mtu: 1500,
            up: true,
            promiscuous: false,
            master,
            peer: None,
            kind: kind.map(str::to_string),
        };
        let pods = link(1, Some("bridge"), None);
        let mixed = link(2, Some("bridge"), None);
        let links = [
            pods.clone(),
            mixed.clone(),
            link(3, Some("veth"), Some(1)),
            link(4, Some("veth"), Some(2)),
            link(5, None, Some(2)),
        ];
        assert!(leads_to_namespaces(&pods, &links));
        assert!(!leads_to_namespaces(&mixed, &links), "a bridge with a hardware port");
        assert!(leads_to_namespaces(&link(6, Some("veth"), None), &links));
        for kind in [None, Some("vlan"), Some("bond"), Some("tun"), Some("wireguard"), Some("vxlan"), Some("macvlan")] {
            assert!(!leads_to_namespaces(&link(7, kind, None), &links), "{kind:?}");
        }
    }
}
