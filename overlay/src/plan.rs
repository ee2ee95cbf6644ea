//! Decides how the pods of other nodes are reached. Nodes describe themselves, so that what one of them claims is
//! believed only where it takes nothing from another: ranges outside of the cluster's, and addresses that an older node
//! has, are refused.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::Str;
use network::netlink::Mac;
use stdx::cidr::IpNet;

use crate::config::{Backend, Config};
use crate::model::{Endpoint, Peer};

/// How the pods of a node are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// In VXLAN packets to its device.
    Vxlan {
        /// The MAC address of the node's VXLAN device.
        mac: Mac,
        /// The address of the node.
        host: IpAddr,
    },
    /// By a plain route.
    Direct {
        /// The address of the node.
        host: IpAddr,
    },
}

/// The routes of a node, of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By the range of the other node's pods.
    pub hops: BTreeMap<IpNet, Hop>,
    /// Nodes whose pods cannot be reached, and why.
    pub problems: Vec<Problem>,
}

/// Why the pods of a node cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: {reason}")]
pub struct Problem {
    /// The name of the node.
    pub node: Str,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Its range would take over other traffic.
    #[error("its pod CIDR {0} is not part of the cluster's")]
    OutsideCluster(IpNet),
    /// An older node has the range.
    #[error("its pod CIDR {0} overlaps that of node {1}")]
    Overlap(IpNet, Str),
    /// An older node has the MAC address.
    #[error("its VXLAN device has the MAC address of node {0}")]
    SameMac(Str),
    /// It is this machine, or no machine.
    #[error("its address {0} is not that of another machine")]
    Address(IpAddr),
    /// It has not published its device.
    #[error("it has not published its VXLAN device yet")]
    NoDevice,
    /// It cannot be reached without an overlay.
    #[error("its address {0} is not on a link of this node, which the backend host-gw needs")]
    NotOnLink(IpAddr),
}

/// The routes of the node `own` to all others. `on_link` tells whether an address is on a link of this machine.
pub fn plan(config: &Config, own: &Peer, is_ipv4: bool, peers: &[Peer], on_link: impl Fn(IpAddr) -> bool) -> Plan {
    let mut plan = Plan::default();
    let Some(local) = own.endpoint(is_ipv4) else { return plan };
    let mut sorted: Vec<(&Peer, &Endpoint)> =
        peers.iter().filter_map(|peer| Some((peer, peer.endpoint(is_ipv4)?))).collect();
    sorted.sort_by(|(one, _), (other, _)| (&one.created, &one.name).cmp(&(&other.created, &other.name)));
    // This node's own range and device are never given away.
    let mut accepted: Vec<(&Str, &Endpoint)> = vec![(&own.name, local)];
    for (peer, endpoint) in sorted.into_iter().filter(|(peer, _)| peer.name != own.name) {
        match judge(config, local, endpoint, &accepted, &on_link) {
            Ok(hop) => {
                accepted.push((&peer.name, endpoint));
                plan.hops.insert(endpoint.pod_cidr, hop);
            }
            Err(reason) => plan.problems.push(Problem { node: peer.name.clone(), reason }),
        }
    }
    plan
}

fn judge(
    config: &Config,
    local: &Endpoint,
    endpoint: &Endpoint,
    accepted: &[(&Str, &Endpoint)],
    on_link: impl Fn(IpAddr) -> bool,
) -> Result<Hop, Reason> {
    let Endpoint { pod_cidr, host, mac } = *endpoint;
    if config.range_of(&pod_cidr).is_none() {
        return Err(Reason::OutsideCluster(pod_cidr));
    }
    if let Some((name, _)) = accepted.iter().find(|(_, other)| other.pod_cidr.overlaps(&pod_cidr)) {
        return Err(Reason::Overlap(pod_cidr, (*name).clone()));
    }
    let is_machine = !(host.is_loopback() || host.is_unspecified() || host.is_multicast());
    if !is_machine || host == local.host || config.range_of(&IpNet::host(host)).is_some() {
        return Err(Reason::Address(host));
    }
    match config.backend {
        Backend::HostGw if !on_link(host) => Err(Reason::NotOnLink(host)),
        Backend::HostGw => Ok(Hop::Direct { host }),
        Backend::Vxlan { direct: true, .. } if on_link(host) => Ok(Hop::Direct { host }),
        Backend::Vxlan { .. } => {
            let mac = mac.filter(|mac| mac[0] & 1 == 0 && *mac != Mac::default()).ok_or(Reason::NoDevice)?;
            match accepted.iter().find(|(_, other)| other.mac == Some(mac)) {
                Some((name, _)) => Err(Reason::SameMac((*name).clone())),
                None => Ok(Hop::Vxlan { mac, host }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, created: &str, cidr: &str, host: &str, mac: u8) -> Peer {
        let mac = (mac > 0).then_some([2, 0, 0, 0, 0, mac]);
        let endpoint =
            Endpoint { pod_cidr: cidr.parse().expect("a CIDR"), host: host.parse().expect("an address"), mac };
        Peer { name: name.into(), created: created.into(), endpoints: vec![endpoint] }
    }

    fn own() -> Peer {
        peer("own", "2026-01-05", "10.42.5.0/24", "192.0.2.5", 5)
    }

    fn config(backend: Backend) -> Config {
        Config { pod_cidrs: vec!["10.42.0.0/16".parse().expect("a CIDR")], backend }
    }

    /// Each hop or problem as a line.
    fn lines(backend: Backend, peers: &[Peer]) -> Vec<String> {
        let on_link = |address: IpAddr| address.to_string().starts_with("192.0.2.");
        let plan = plan(&config(backend), &own(), true, peers, on_link);
        let hops = plan.hops.iter().map(|(cidr, hop)| match hop {
            Hop::Vxlan { mac, host } => format!("{cidr} vxlan {host} {}", mac[5]),
            Hop::Direct { host } => format!("{cidr} direct {host}"),
        });
        hops.chain(plan.problems.iter().map(ToString::to_string)).collect()
    }

    const VXLAN: Backend = Backend::Vxlan { vni: 1, port: 8472, direct: false };

    #[test]
    fn reaches_every_other_node() {
        let near = peer("near", "2026-01-01", "10.42.1.0/24", "192.0.2.1", 1);
        let far = peer("far", "2026-01-02", "10.42.2.0/24", "198.51.100.2", 2);
        let peers = [own(), near, far];
        assert_eq!(lines(VXLAN, &peers), ["10.42.1.0/24 vxlan 192.0.2.1 1", "10.42.2.0/24 vxlan 198.51.100.2 2"]);
        let direct = Backend::Vxlan { vni: 1, port: 8472, direct: true };
        assert_eq!(lines(direct, &peers), ["10.42.1.0/24 direct 192.0.2.1", "10.42.2.0/24 vxlan 198.51.100.2 2"]);
        assert_eq!(
            lines(Backend::HostGw, &peers),
            [
                "10.42.1.0/24 direct 192.0.2.1",
                "node far: its address 198.51.100.2 is not on a link of this node, which the backend host-gw needs"
            ]
        );
    }

    #[test]
    fn nodes_take_nothing_from_others() {
        let older = peer("older", "2026-01-01", "10.42.1.0/24", "192.0.2.1", 1);
        let check = |claim: Peer, want: &str| {
            let found = lines(VXLAN, &[claim, older.clone()]);
            assert_eq!(found, ["10.42.1.0/24 vxlan 192.0.2.1 1", want]);
        };
        let claim = |cidr: &str, host: &str, mac: u8| peer("new", "2026-01-09", cidr, host, mac);
        check(claim("0.0.0.0/0", "192.0.2.9", 9), "node new: its pod CIDR 0.0.0.0/0 is not part of the cluster's");
        check(
            claim("10.96.0.0/24", "192.0.2.9", 9),
            "node new: its pod CIDR 10.96.0.0/24 is not part of the cluster's",
        );
        check(claim("10.42.0.0/23", "192.0.2.9", 9), "node new: its pod CIDR 10.42.0.0/23 overlaps that of node older");
        check(claim("10.42.5.0/24", "192.0.2.9", 9), "node new: its pod CIDR 10.42.5.0/24 overlaps that of node own");
        check(claim("10.42.9.0/24", "192.0.2.9", 1), "node new: its VXLAN device has the MAC address of node older");
        check(claim("10.42.9.0/24", "192.0.2.9", 5), "node new: its VXLAN device has the MAC address of node own");
        check(claim("10.42.9.0/24", "192.0.2.9", 0), "node new: it has not published its VXLAN device yet");
        check(claim("10.42.9.0/24", "192.0.2.5", 9), "node new: its address 192.0.2.5 is not that of another machine");
        check(claim("10.42.9.0/24", "127.0.0.1", 9), "node new: its address 127.0.0.1 is not that of another machine");
        check(claim("10.42.9.0/24", "10.42.1.7", 9), "node new: its address 10.42.1.7 is not that of another machine");
    }

    #[test]
    fn a_node_without_pods_of_a_family_has_no_routes() {
        let peers = [peer("near", "2026-01-01", "10.42.1.0/24", "192.0.2.1", 1)];
        assert_eq!(plan(&config(VXLAN), &own(), false, &peers, |_| true), Plan::default());
    }
}
