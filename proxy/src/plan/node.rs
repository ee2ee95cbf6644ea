//! The rules of a node that are common to all Services.

use std::net::IpAddr;

use network::cidr::IpNet;

use crate::model::{Family, NodeInfo};

/// How packets of pods on this node are recognised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalTraffic {
    /// Not at all.
    #[default]
    Unknown,
    /// By their source.
    Sources(Vec<IpNet>),
    /// By the bridge that they come from.
    Interface(String),
    /// By the name of the device that they come from.
    InterfacePrefix(String),
}

/// The addresses at which node ports are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// All addresses of the node except loopback.
    All,
    /// These.
    Only(Vec<IpAddr>),
}

/// The rules of a node for an address family that do not depend on Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRules {
    /// The family.
    pub family: Family,
    /// How packets of this node's pods are recognised.
    pub local_traffic: LocalTraffic,
    /// Whether all packets to cluster IPs get the node's source address.
    pub masquerade_all: bool,
    /// The addresses at which node ports are served.
    pub node_ports: NodePortAddresses,
    /// The ranges of cluster IPs: packets to addresses without a Service are dropped.
    pub service_cidrs: Vec<IpNet>,
}

/// The rule for local traffic from upstream's modes.
pub fn local_traffic(mode: &crate::config::LocalMode, family: Family, node: &NodeInfo) -> LocalTraffic {
    use crate::config::LocalMode;
    let of_family = |cidrs: &[IpNet]| {
        let own: Vec<IpNet> = cidrs.iter().filter(|cidr| Family::of(cidr.address) == family).copied().collect();
        if own.is_empty() { LocalTraffic::Unknown } else { LocalTraffic::Sources(own) }
    };
    match mode {
        LocalMode::ClusterCidr(cidrs) => of_family(cidrs),
        LocalMode::NodeCidr => of_family(&node.pod_cidrs),
        LocalMode::BridgeInterface(name) => LocalTraffic::Interface(name.clone()),
        LocalMode::InterfaceNamePrefix(prefix) => LocalTraffic::InterfacePrefix(prefix.clone()),
    }
}

/// Resolves the configured ranges to addresses of this machine. Loopback is served in the mode iptables only.
pub fn node_port_addresses(
    configured: &[crate::config::NodePortAddress],
    family: Family,
    node: &NodeInfo,
    machine: &[IpAddr],
) -> NodePortAddresses {
    use crate::config::NodePortAddress;
    let of_family: Vec<&NodePortAddress> = configured.iter().filter(|one| one.covers(family)).collect();
    let matches_all = |one: &&NodePortAddress| match one {
        NodePortAddress::All => true,
        NodePortAddress::Cidr(cidr) => cidr.prefix() == 0,
        NodePortAddress::Primary | NodePortAddress::Localhost => false,
    };
    if of_family.is_empty() || of_family.iter().any(matches_all) {
        return NodePortAddresses::All;
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for one in of_family {
        match one {
            NodePortAddress::Primary => addresses.extend(node.primary(family)),
            NodePortAddress::Localhost => addresses.extend(machine.iter().filter(|address| address.is_loopback())),
            NodePortAddress::Cidr(cidr) => addresses.extend(machine.iter().filter(|address| cidr.contains(**address))),
            NodePortAddress::All => {}
        }
    }
    addresses.retain(|address| Family::of(*address) == family);
    addresses.sort_unstable();
    addresses.dedup();
    NodePortAddresses::Only(addresses)
}
