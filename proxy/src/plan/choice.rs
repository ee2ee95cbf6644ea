//! Which endpoints get traffic: readiness, locality and topology.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::model::{Endpoint, NodeInfo, ServicePort};

/// An endpoint with the number of one of its ports.
#[derive(Clone, Copy, Debug)]
pub struct PortEndpoint<'a> {
    /// The endpoint.
    pub endpoint: &'a Endpoint,
    /// The number of the port.
    pub port: u16,
}

impl PortEndpoint<'_> {
    /// Its address and port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.endpoint.address, self.port)
    }
}

/// The chosen endpoints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// For the policy Cluster.
    pub cluster: Vec<SocketAddr>,
    /// For the policy Local.
    pub local: Vec<SocketAddr>,
    /// The addresses among them that are on this node.
    pub hairpin: Vec<IpAddr>,
    /// Whether there is a usable endpoint on any node.
    pub has_endpoints: bool,
}

/// A preference that hints express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    SameNode,
    SameZone,
    Anywhere,
}

/// Chooses ready endpoints. Where there are none, those that terminate but still serve are used, for the policies Cluster
/// and Local independently.
pub fn choose(port: &ServicePort, endpoints: &[PortEndpoint<'_>], node: &NodeInfo) -> Choice {
    let is_ready = |one: &&PortEndpoint<'_>| one.endpoint.ready;
    let is_fallback = |one: &&PortEndpoint<'_>| one.endpoint.serving && one.endpoint.terminating;
    let is_local = |one: &&PortEndpoint<'_>| one.endpoint.local;
    let mut choice = Choice::default();
    let mut chosen: Vec<&PortEndpoint<'_>> = Vec::new();
    if port.uses_cluster_endpoints() {
        let topology = topology(endpoints, node);
        let mut cluster: Vec<_> =
            endpoints.iter().filter(is_ready).filter(|one| is_near(one.endpoint, topology, node)).collect();
        if cluster.is_empty() {
            cluster = endpoints.iter().filter(is_fallback).collect();
        }
        choice.has_endpoints = !cluster.is_empty();
        choice.cluster = cluster.iter().map(|one| one.address()).collect();
        chosen.extend(cluster);
    }
    if port.uses_local_endpoints() {
        choice.has_endpoints |= endpoints.iter().any(|one| is_ready(&one) || is_fallback(&one));
        let mut local: Vec<_> = endpoints.iter().filter(is_local).filter(is_ready).collect();
        if local.is_empty() {
            local = endpoints.iter().filter(is_local).filter(is_fallback).collect();
        }
        choice.local = local.iter().map(|one| one.address()).collect();
        chosen.extend(local);
    }
    choice.hairpin = chosen.iter().filter(|one| one.endpoint.local).map(|one| one.endpoint.address).collect();
    choice.hairpin.sort_unstable();
    choice.hairpin.dedup();
    choice
}

/// Hints are used only if all ready endpoints have them and one of them is for this node or zone: otherwise traffic would
/// be lost or uneven while hints change.
fn topology(endpoints: &[PortEndpoint<'_>], node: &NodeInfo) -> Topology {
    let ready = || endpoints.iter().map(|one| one.endpoint).filter(|endpoint| endpoint.ready);
    let usable = |hints: fn(&Endpoint) -> &[api::Str], name: &api::Str| {
        ready().all(|endpoint| !hints(endpoint).is_empty()) && ready().any(|endpoint| hints(endpoint).contains(name))
    };
    if usable(|endpoint| &endpoint.nodes, &node.name) {
        Topology::SameNode
    } else if usable(|endpoint| &endpoint.zones, &node.zone) {
        Topology::SameZone
    } else {
        Topology::Anywhere
    }
}

fn is_near(endpoint: &Endpoint, topology: Topology, node: &NodeInfo) -> bool {
    match topology {
        Topology::SameNode => endpoint.nodes.contains(&node.name),
        Topology::SameZone => endpoint.zones.contains(&node.zone),
        Topology::Anywhere => true,
    }
}

/// Orders endpoints so that as many as possible keep their position, and a change costs as many elements as endpoints
/// that have changed: new endpoints take the positions of removed ones, and the last fill the rest.
pub fn keep_positions(previous: &[SocketAddr], desired: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let wanted: HashSet<SocketAddr> = desired.into_iter().collect();
    let mut positions: Vec<Option<SocketAddr>> =
        previous.iter().map(|address| wanted.contains(address).then_some(*address)).collect();
    let kept: HashSet<SocketAddr> = positions.iter().flatten().copied().collect();
    let mut new: Vec<SocketAddr> = wanted.difference(&kept).copied().collect();
    new.sort_unstable_by(|a, b| b.cmp(a));
    for position in positions.iter_mut().filter(|position| position.is_none()) {
        *position = new.pop();
    }
    positions.extend(new.into_iter().rev().map(Some));
    let mut order = Vec::with_capacity(positions.len());
    while let Some(position) = positions.get(order.len()).copied() {
        order.extend(position.or_else(|| positions.pop().flatten()));
    }
    order
}
