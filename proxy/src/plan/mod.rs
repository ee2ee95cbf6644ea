//! Decides what happens to packets for a port of a Service. Pure functions of plain values: a backend turns a plan into
//! rules of its own kind.

mod choice;
mod node;
mod text;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::Str;
use network::cidr::IpNet;

pub use choice::{Choice, PortEndpoint, choose, keep_positions};
pub use node::{LocalTraffic, NodePortAddresses, NodeRules, local_traffic, node_port_addresses};

use crate::model::{NodeInfo, Protocol, ServicePort};

/// Which endpoints get the traffic of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// The endpoints of all nodes.
    Cluster,
    /// The endpoints of this node.
    Local,
    /// No endpoint, because all are on other nodes and the traffic must stay on this one.
    Drop,
    /// No endpoint, because there is none.
    Reject,
}

/// Everything that happens to packets for a port of a Service, in one address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// When the Service was created. If plans have an address in common, the oldest one counts, and then the first name.
    pub created: Str,
    /// The protocol of all addresses and endpoints.
    pub protocol: Protocol,
    /// The address inside the cluster.
    pub cluster_ip: IpAddr,
    /// The port of all addresses.
    pub port: u16,
    /// The endpoints of the cluster IP.
    pub internal: Traffic,
    /// External IPs and addresses of load balancers.
    pub external_ips: Vec<IpAddr>,
    /// The port at the node's addresses.
    pub node_port: Option<u16>,
    /// The endpoints of external addresses and the node port; unused without any. With the policy Local, clients on
    /// this node reach endpoints of all nodes nevertheless, as if they came through a load balancer.
    pub external: Traffic,
    /// Whether external packets keep their source address.
    pub external_local: bool,
    /// Addresses of load balancers that only some sources may use.
    pub firewalled: Vec<IpAddr>,
    /// These sources.
    pub sources: Vec<IpNet>,
    /// How long a client stays with its endpoint.
    pub affinity: Option<Duration>,
    /// The endpoints for the policy Cluster, in a stable order.
    pub cluster: Vec<SocketAddr>,
    /// The endpoints for the policy Local, in a stable order.
    pub local: Vec<SocketAddr>,
    /// Endpoints of this node that may be their own clients, and need another source address then.
    pub hairpin: Vec<IpAddr>,
}

/// Plans a port. The previous plan only determines the order of endpoints.
pub fn plan_port(
    port: &ServicePort,
    endpoints: &[PortEndpoint<'_>],
    node: &NodeInfo,
    previous: Option<&PortPlan>,
) -> PortPlan {
    let choice = choose(port, endpoints, node);
    let internal = traffic(port.internal_local, &choice);
    let external = traffic(port.external_local, &choice);
    let mut external_ips: Vec<IpAddr> = port.external_ips.iter().chain(&port.load_balancer_ips).copied().collect();
    external_ips.sort_unstable();
    external_ips.dedup();
    let is_firewalled = !port.source_ranges.is_empty();
    PortPlan {
        created: port.created.clone(),
        protocol: port.name.protocol,
        cluster_ip: port.cluster_ip,
        port: port.port,
        internal,
        external_ips,
        node_port: port.node_port,
        external,
        external_local: port.external_local,
        firewalled: if is_firewalled { port.load_balancer_ips.clone() } else { Vec::new() },
        sources: sources(port, node),
        affinity: port.affinity,
        cluster: keep_positions(previous.map_or(&[], |plan| &plan.cluster), choice.cluster),
        local: keep_positions(previous.map_or(&[], |plan| &plan.local), choice.local),
        hairpin: choice.hairpin,
    }
}

fn traffic(stays_local: bool, choice: &Choice) -> Traffic {
    match (choice.has_endpoints, stays_local) {
        (false, _) => Traffic::Reject,
        (true, false) => Traffic::Cluster,
        (true, true) if choice.local.is_empty() => Traffic::Drop,
        (true, true) => Traffic::Local,
    }
}

/// The allowed sources without those that others contain. If the node itself is allowed, so is the load balancer's
/// address: packets from the node to an address that is also its own have that address as their source.
fn sources(port: &ServicePort, node: &NodeInfo) -> Vec<IpNet> {
    let ranges = &port.source_ranges;
    let address = node.primary(port.name.family);
    let is_node_allowed = address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)));
    let own = port.load_balancer_ips.iter().filter(|_| is_node_allowed).map(|address| IpNet::host(*address));
    let mut all: Vec<IpNet> = ranges.iter().map(IpNet::network).chain(own).collect();
    all.sort_unstable_by_key(|range| (range.prefix(), range.address));
    all.dedup();
    let mut kept: Vec<IpNet> = Vec::new();
    for range in all {
        if !kept.iter().any(|wider| wider.contains(range.address)) {
            kept.push(range);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
