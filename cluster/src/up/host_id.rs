//! The simulated hosts of a cluster: what each is for, its name, and its address on the link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::hosts::HostLink;
use network::cidr::IpNet;

/// The most nodes of a machine: the link has an address for each of them, and for the hosts below.
pub const MAX_NODES: u32 = 200;
/// The members of the etcd cluster that servers share: one may fail.
pub(super) const MEMBERS: u32 = 3;
/// The first address of the link is that of this machine, and the addresses of nodes follow. A first node that is not
/// this machine has an address of its own.
const FIRST_NODE_SLOT: u32 = 250;
const MEMBER_SLOT: u32 = 250;
const MEMBER: &str = "etcd-";

/// A simulated host, in the order in which hosts start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostId {
    /// A member of etcd.
    Member(u32),
    /// A server that is a node too.
    Server(u32),
    /// A node.
    Node(u32),
}

impl HostId {
    /// The host of a name. The first `servers` nodes are servers.
    pub(super) fn parse(name: &str, first: &str, servers: u32) -> Option<HostId> {
        let rest = name.strip_prefix(first)?.strip_prefix('-')?;
        let number = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text && *number > 0);
        match rest.strip_prefix(MEMBER) {
            Some(member) => number(member).map(HostId::Member),
            None => number(rest).map(|number| HostId::node(number, servers)),
        }
    }

    /// The host of a node.
    pub(super) fn node(number: u32, servers: u32) -> HostId {
        if number <= servers { HostId::Server(number) } else { HostId::Node(number) }
    }

    /// Its name: that of the first node with a number.
    pub(super) fn name(self, first: &str) -> String {
        match self {
            HostId::Member(number) => format!("{first}-{MEMBER}{number}"),
            HostId::Server(number) | HostId::Node(number) => format!("{first}-{number}"),
        }
    }

    /// What `tiphys node list` shows.
    pub(super) fn role(self) -> &'static str {
        match self {
            HostId::Member(_) => "etcd",
            HostId::Server(_) => "server",
            HostId::Node(_) => "node",
        }
    }

    /// Whether the cluster has a Node of its name.
    pub(super) fn is_node(self) -> bool {
        !matches!(self, HostId::Member(_))
    }

    /// Its device and address on a link, whose devices begin with a prefix. None if the link has no more addresses.
    pub(super) fn on_link(self, (net, net6): (IpNet, Option<IpNet>), prefix: &str) -> Option<HostLink> {
        let IpAddr::V4(first) = net.address else { return None };
        let slot = match self {
            HostId::Member(number) => MEMBER_SLOT + number,
            HostId::Server(1) | HostId::Node(1) => FIRST_NODE_SLOT,
            HostId::Server(number) | HostId::Node(number) => number,
        };
        let address = Ipv4Addr::from_bits(first.to_bits().checked_add(slot - 1)?);
        let of_ipv6 = |net: IpNet| match net.address {
            IpAddr::V6(first) => {
                let address = Ipv6Addr::from_bits(first.to_bits().checked_add(u128::from(slot - 1))?);
                IpNet::new(address.into(), net.prefix())
            }
            IpAddr::V4(_) => None,
        };
        let kind = if self.is_node() { 'n' } else { 'e' };
        let (HostId::Member(number) | HostId::Server(number) | HostId::Node(number)) = self;
        let device = format!("{prefix}-{kind}{number}");
        Some(HostLink { device, net: IpNet::new(address.into(), net.prefix())?, net6: net6.and_then(of_ipv6) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_lead_back_to_hosts() {
        for id in [HostId::Member(2), HostId::Server(1), HostId::Server(3), HostId::Node(4)] {
            assert_eq!(HostId::parse(&id.name("a-1"), "a-1", 3), Some(id));
        }
        for name in ["a", "a-", "a-0", "a-01", "a-x", "a-etcd-", "b-1"] {
            assert_eq!(HostId::parse(name, "a", 0), None, "{name}");
        }
    }

    #[test]
    fn hosts_have_different_addresses_and_devices() {
        let net = IpNet::new(IpAddr::from([172, 30, 0, 1]), 24).expect("a network");
        let members = (1..=MEMBERS).map(HostId::Member);
        let all: Vec<HostLink> = members
            .chain((1..=MAX_NODES).map(|number| HostId::node(number, 3)))
            .map(|id| id.on_link((net, None), "tiphys99").expect("an address"))
            .collect();
        let addresses: BTreeSet<IpAddr> = all.iter().map(|host| host.net.address).collect();
        let devices: BTreeSet<&str> = all.iter().map(|host| host.device.as_str()).collect();
        assert_eq!((addresses.len(), devices.len()), (all.len(), all.len()));
        assert!(!addresses.contains(&net.address) && all.iter().all(|host| host.device.len() < 16));
        assert!(addresses.iter().all(|address| net.network().contains(*address)), "{addresses:?}");
    }
}
