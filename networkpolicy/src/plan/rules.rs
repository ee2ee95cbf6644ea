//! The chains and sets of one policy in one direction.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::selector::Selector;
use network::cidr::{IpNet, octets};
use network::nft::{Element, Field, Register};

use super::{FAMILIES, FIRST, Family, addresses, matching_namespaces, ranges};
use crate::model::{Cluster, Direction, Endpoint, Peer, PeerNamespaces, Peers, Policy, Port, PortNumbers, Ports, Rule};
use crate::table::{self, SetKind, Step, Table, Value, Values};

/// A policy, and the pods of this node that it selects.
pub(super) struct PolicyRules<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) endpoints: &'a [Endpoint<'a>],
    pub(super) direction: Direction,
    pub(super) policy: &'a Policy,
    pub(super) pods: &'a [&'a Endpoint<'a>],
}

impl PolicyRules<'_> {
    /// Adds the chain of the policy, and what it uses.
    pub(super) fn put(&self, chain: &str, table: &mut Table) {
        let mut rules = Vec::new();
        for (index, rule) in self.policy.rules(self.direction).unwrap_or_default().iter().enumerate() {
            self.put_rule(&format!("{chain}/{index}"), rule, &mut rules, table);
        }
        table.chain(chain, rules);
    }

    /// A rule allows if both a peer and a port match. If it has both, the ports are in a chain of their own.
    fn put_rule(&self, name: &str, rule: &Rule, rules: &mut Vec<table::Rule>, table: &mut Table) {
        let accept = || vec![Step::Accept];
        match (&rule.peers, &rule.ports) {
            (Peers::Any, Ports::Any) => rules.push(accept()),
            (Peers::Any, Ports::Listed(ports)) => {
                rules.extend(followed(self.port_matches(name, rule, ports, table), &accept()));
            }
            (Peers::Listed(peers), Ports::Any) => {
                rules.extend(followed(self.peer_matches(name, peers, table), &accept()));
            }
            (Peers::Listed(peers), Ports::Listed(ports)) => {
                let port_rules = followed(self.port_matches(name, rule, ports, table), &accept());
                table.chain(name, port_rules);
                let jump = vec![Step::Jump(name.to_string())];
                rules.extend(followed(self.peer_matches(name, peers, table), &jump));
            }
        }
    }

    /// The beginnings of rules that match the peers.
    fn peer_matches(&self, name: &str, peers: &[Peer], table: &mut Table) -> Vec<Vec<Step>> {
        let mut matches = Vec::new();
        let pods = self.pods_of(peers);
        for family in FAMILIES {
            let mut put = |set: String| {
                matches.push(vec![Step::Load(family.peer(self.direction), FIRST), Step::In(FIRST, set)]);
            };
            if peers.iter().any(|peer| matches!(peer, Peer::Pods { .. })) {
                let set = format!("{name}/pods{}", family.suffix);
                let members = table.set(&set, addresses(family));
                pods.iter().flat_map(|pod| ips(pod, family)).for_each(|ip| members.add(octets(ip)));
                put(set);
            }
            let blocks = ranges::ranges(peers.iter().filter_map(block), family.is_ipv4);
            if !blocks.is_empty() {
                let set = format!("{name}/blocks{}", family.suffix);
                let kind = SetKind { key: family.address, values: Values::Intervals };
                let elements = blocks.into_iter().map(|(first, last)| (octets(first), Value::Until(octets(last))));
                table.set(&set, kind).elements.extend(elements);
                put(set);
            }
        }
        matches
    }

    /// The pods that one of the peers selects.
    fn pods_of(&self, peers: &[Peer]) -> Vec<&Endpoint<'_>> {
        let selections: Vec<_> = peers.iter().filter_map(|peer| self.selection(peer)).collect();
        self.endpoints.iter().filter(|pod| selections.iter().any(|selection| selection.matches(pod))).collect()
    }

    /// None if the peer does not select pods.
    fn selection<'p>(&'p self, peer: &'p Peer) -> Option<PodSelection<'p>> {
        let Peer::Pods { namespaces, pods } = peer else { return None };
        let namespaces = match namespaces {
            PeerNamespaces::Own => BTreeSet::from([self.policy.namespace.as_str()]),
            PeerNamespaces::Matching(selector) => matching_namespaces(self.cluster, selector),
        };
        Some(PodSelection { namespaces, pods })
    }

    /// The beginnings of rules that match the ports. They are those of the destination, which replies.
    fn port_matches(&self, name: &str, rule: &Rule, ports: &[Port], table: &mut Table) -> Vec<Vec<Step>> {
        let mut matches = Vec::new();
        for port in ports {
            let protocol =
                [Step::Load(Field::ConnectionProtocol, FIRST), Step::Equal(FIRST, vec![port.protocol.number()])];
            let load = Step::Load(Field::ReplyPort, FIRST);
            match &port.numbers {
                PortNumbers::Any => matches.push(protocol.to_vec()),
                PortNumbers::Range(first, last) => {
                    let (first, last) = (first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec());
                    let number =
                        if first == last { Step::Equal(FIRST, first) } else { Step::Between(FIRST, first, last) };
                    matches.push(protocol.into_iter().chain([load, number]).collect());
                }
                PortNumbers::Named(_) => {}
            }
        }
        if ports.iter().any(|port| matches!(port.numbers, PortNumbers::Named(_))) {
            matches.extend(FAMILIES.map(|family| self.named_ports(name, rule, ports, family, table)));
        }
        matches
    }

    /// Matches named ports: the numbers that possible destinations have for them.
    fn named_ports(&self, name: &str, rule: &Rule, ports: &[Port], family: Family, table: &mut Table) -> Vec<Step> {
        let set = format!("{name}/ports{}", family.suffix);
        let members = table.set(&set, SetKind { key: family.port, values: Values::None });
        for destination in self.destinations(rule) {
            let is_named = |protocol, name: &api::Str| {
                ports.iter().any(|port| port.protocol == protocol && port.numbers == PortNumbers::Named(name.clone()))
            };
            for port in destination.pod.ports.iter().filter(|port| is_named(port.protocol, &port.name)) {
                for ip in ips(destination, family) {
                    let parts: [&[u8]; 3] = [&octets(ip), &[port.protocol.number()], &port.port.to_be_bytes()];
                    members.add(Element::join(&parts));
                }
            }
        }
        let Register(protocol) = family.after_address;
        vec![
            Step::Load(family.reply_source, FIRST),
            Step::Load(Field::ConnectionProtocol, Register(protocol)),
            Step::Load(Field::ReplyPort, Register(protocol + 1)),
            Step::In(FIRST, set),
        ]
    }

    /// The pods whose named ports a rule may mean: the isolated ones for ingress, its peers for egress.
    fn destinations(&self, rule: &Rule) -> Vec<&Endpoint<'_>> {
        match (self.direction, &rule.peers) {
            (Direction::Ingress, _) => self.pods.to_vec(),
            (Direction::Egress, Peers::Any) => self.endpoints.iter().collect(),
            (Direction::Egress, Peers::Listed(peers)) => {
                let is_in_block = |pod: &&Endpoint<'_>| {
                    let blocks = || peers.iter().filter_map(block);
                    pod.ips.iter().any(|ip| {
                        blocks().any(|(cidr, except)| cidr.contains(*ip) && !except.iter().any(|net| net.contains(*ip)))
                    })
                };
                let in_blocks = self.endpoints.iter().filter(is_in_block);
                self.pods_of(peers).into_iter().chain(in_blocks).collect()
            }
        }
    }
}

/// A peer that selects pods.
struct PodSelection<'a> {
    namespaces: BTreeSet<&'a str>,
    pods: &'a Selector,
}

impl PodSelection<'_> {
    fn matches(&self, pod: &Endpoint<'_>) -> bool {
        self.namespaces.contains(pod.pod.namespace.as_str()) && self.pods.matches_with(|key| pod.labels.get(key))
    }
}

fn block(peer: &Peer) -> Option<(&IpNet, &[IpNet])> {
    match peer {
        Peer::Block { cidr, except } => Some((cidr, except)),
        Peer::Pods { .. } => None,
    }
}

fn ips(pod: &Endpoint<'_>, family: Family) -> Vec<IpAddr> {
    pod.ips.iter().copied().filter(|ip| ip.is_ipv4() == family.is_ipv4).collect()
}

/// Each match with the same end.
fn followed(matches: Vec<Vec<Step>>, end: &[Step]) -> Vec<table::Rule> {
    matches.into_iter().map(|steps| steps.into_iter().chain(end.iter().cloned()).collect()).collect()
}
