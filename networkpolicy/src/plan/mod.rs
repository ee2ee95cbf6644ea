//! Decides what the node's table contains, from policies, pods and namespaces. Pure.
//!
//! Every packet is judged by its connection: who opened it, who replies, and the port of replies. So a service's
//! virtual address never matters, replies are judged like the packets that they reply to, and ICMP errors like the
//! packets that they are about; and when a policy changes, both directions of a connection that is no longer allowed
//! are cut at once.
//!
//! - Two base chains see all forwarded packets: `egress` judges who opened the connection, `ingress` who replies. What
//!   is accepted by the first still passes the second.
//! - A verdict map leads the address of an isolated pod of this node to the chain of its group: all policies that
//!   apply to it, then `refuse`. Other packets cost two lookups.
//! - A policy has a chain for each direction. The peers of a rule are sets of addresses.

mod names;
mod ranges;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use network::cidr::octets;
use network::nft::{Element, Field, Hook, Kind, Register, STATE_INVALID, STATE_UNTRACKED};

use crate::model::{Cluster, Direction, Endpoint, Policy};
use crate::table::{Rule, SetKind, Step, Table, Value, Values};
use names::Groups;
use rules::PolicyRules;

/// An address family, as far as rules differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    is_ipv4: bool,
    /// The end of names.
    suffix: &'static str,
    original_source: Field,
    reply_source: Field,
    source: Field,
    destination: Field,
    /// The value of [`Field::NetworkProtocol`].
    number: u8,
    /// The register after an address in the first one.
    after_address: Register,
    address: &'static [Kind],
    pair: &'static [Kind],
    port: &'static [Kind],
}

const V4: Family = Family {
    is_ipv4: true,
    suffix: "4",
    original_source: Field::OriginalSource4,
    reply_source: Field::ReplySource4,
    source: Field::Ipv4Source,
    destination: Field::Ipv4Destination,
    number: 2,
    after_address: Register(1),
    address: &[Kind::Ipv4],
    pair: &[Kind::Ipv4, Kind::Ipv4],
    port: &[Kind::Ipv4, Kind::Protocol, Kind::Port],
};
const V6: Family = Family {
    is_ipv4: false,
    suffix: "6",
    original_source: Field::OriginalSource6,
    reply_source: Field::ReplySource6,
    source: Field::Ipv6Source,
    destination: Field::Ipv6Destination,
    number: 10,
    after_address: Register(4),
    address: &[Kind::Ipv6],
    pair: &[Kind::Ipv6, Kind::Ipv6],
    port: &[Kind::Ipv6, Kind::Protocol, Kind::Port],
};
const FAMILIES: [Family; 2] = [V4, V6];

const FIRST: Register = Register(0);
const UNTRACKED: &str = "untracked";
const REFUSE: &str = "refuse";

impl Family {
    fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { V4 } else { V6 }
    }

    fn name(self, text: &str) -> String {
        format!("{text}{}", self.suffix)
    }

    /// The address that a direction's isolation is about.
    fn isolated(self, direction: Direction) -> Field {
        match direction {
            Direction::Ingress => self.reply_source,
            Direction::Egress => self.original_source,
        }
    }

    /// The address of the other side.
    fn peer(self, direction: Direction) -> Field {
        match direction {
            Direction::Ingress => self.original_source,
            Direction::Egress => self.reply_source,
        }
    }
}

/// The desired table of this node; empty if no pod of it is isolated.
pub fn plan(cluster: &Cluster) -> Table {
    let mut table = Table::default();
    if cluster.policies.is_empty() {
        return table;
    }
    let endpoints = cluster.endpoints();
    let mut planner =
        Planner { cluster, endpoints: &endpoints, by_namespace: by_namespace(cluster), table: &mut table };
    planner.isolate();
    if !table.is_empty() {
        put_base(&mut table);
    }
    table
}

type PoliciesByNamespace<'a> = BTreeMap<&'a str, Vec<&'a Arc<Policy>>>;

fn by_namespace(cluster: &Cluster) -> PoliciesByNamespace<'_> {
    let mut map = PoliciesByNamespace::new();
    cluster.policies.values().for_each(|policy| map.entry(&policy.namespace).or_default().push(policy));
    map
}

struct Planner<'a> {
    cluster: &'a Cluster,
    endpoints: &'a [Endpoint<'a>],
    by_namespace: PoliciesByNamespace<'a>,
    table: &'a mut Table,
}

impl<'a> Planner<'a> {
    /// Leads the addresses of this node's isolated pods to the chains of their policies.
    fn isolate(&mut self) {
        let mut groups = Groups::default();
        // The policies that select pods of this node, each with those pods.
        let mut selected: BTreeMap<(Direction, String), (&'a Policy, Vec<&'a Endpoint<'a>>)> = BTreeMap::new();
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.local) {
            for direction in Direction::ALL {
                let policies = self.policies_of(endpoint, direction);
                if policies.is_empty() {
                    continue;
                }
                let chains: Vec<String> = policies.iter().map(|policy| names::policy(direction, policy)).collect();
                for (policy, chain) in policies.iter().zip(&chains) {
                    let entry = selected.entry((direction, chain.clone())).or_insert_with(|| (policy, Vec::new()));
                    entry.1.push(endpoint);
                }
                self.put_group(&mut groups, direction, endpoint, &chains);
            }
        }
        for ((direction, chain), (policy, pods)) in selected {
            let rules =
                PolicyRules { cluster: self.cluster, endpoints: self.endpoints, direction, policy, pods: &pods };
            rules.put(&chain, self.table);
        }
    }

    fn policies_of(&self, endpoint: &Endpoint<'_>, direction: Direction) -> Vec<&'a Policy> {
        let policies = self.by_namespace.get(endpoint.pod.namespace.as_str()).into_iter().flatten();
        let selects = |policy: &&Policy| {
            policy.rules(direction).is_some() && policy.selector.matches_with(|key| endpoint.labels.get(key))
        };
        policies.map(|policy| &***policy).filter(selects).collect()
    }

    fn put_group(&mut self, groups: &mut Groups, direction: Direction, endpoint: &Endpoint<'_>, chains: &[String]) {
        let (group, is_new) = groups.name(direction, &endpoint.pod.namespace, chains);
        if is_new {
            let jumps = chains.iter().map(|chain| vec![Step::Jump(chain.clone())]);
            let rules = jumps.chain([vec![Step::Goto(REFUSE.to_string())]]).collect();
            self.table.chain(&group, rules);
        }
        for ip in &endpoint.ips {
            let (family, key) = (Family::of(*ip), octets(*ip));
            let map = self.table.set(&family.name(names::direction(direction)), verdicts(family));
            map.elements.insert(key.clone(), Value::Goto(group.clone()));
            self.table.set(&family.name("isolated"), addresses(family)).add(key.clone());
            self.table.set(&family.name("self"), pairs(family)).add(Element::join(&[&key, &key]));
        }
    }
}

fn verdicts(family: Family) -> SetKind {
    SetKind { key: family.address, values: Values::Verdicts }
}

fn addresses(family: Family) -> SetKind {
    SetKind { key: family.address, values: Values::None }
}

fn pairs(family: Family) -> SetKind {
    SetKind { key: family.pair, values: Values::None }
}

/// The chains and sets that every table has.
fn put_base(table: &mut Table) {
    for family in FAMILIES {
        for direction in Direction::ALL {
            table.set(&family.name(names::direction(direction)), verdicts(family));
        }
        table.set(&family.name("isolated"), addresses(family));
        table.set(&family.name("self"), pairs(family));
    }
    let untracked = vec![
        Step::Load(Field::ConnectionState, FIRST),
        Step::any_bit(FIRST, STATE_INVALID | STATE_UNTRACKED),
        Step::Jump(UNTRACKED.to_string()),
    ];
    for (direction, priority, before) in [(Direction::Egress, 0, Some(untracked)), (Direction::Ingress, 1, None)] {
        let name = names::direction(direction);
        let lookups = FAMILIES
            .map(|family| vec![Step::Load(family.isolated(direction), FIRST), Step::Verdict(FIRST, family.name(name))]);
        table.base_chain(name, Hook::filter(Hook::FORWARD, priority), before.into_iter().chain(lookups).collect());
    }
    table.chain(UNTRACKED, FAMILIES.iter().flat_map(|family| untracked_rules(*family)).collect());
    let refuse = FAMILIES.map(accept_self).into_iter().chain([vec![Step::Drop]]);
    table.chain(REFUSE, refuse.collect());
}

/// Packets without a connection cannot be judged: those from and to isolated pods are dropped.
fn untracked_rules(family: Family) -> [Rule; 2] {
    [family.source, family.destination].map(|field| {
        vec![
            Step::Load(Field::NetworkProtocol, FIRST),
            Step::Equal(FIRST, vec![family.number]),
            Step::Load(field, FIRST),
            Step::In(FIRST, family.name("isolated")),
            Step::Drop,
        ]
    })
}

/// A pod reaches itself, also through a service.
fn accept_self(family: Family) -> Rule {
    vec![
        Step::Load(family.original_source, FIRST),
        Step::Load(family.reply_source, family.after_address),
        Step::In(FIRST, family.name("self")),
        Step::Accept,
    ]
}

/// The namespaces whose labels match, by name.
fn matching_namespaces<'a>(cluster: &'a Cluster, selector: &api::selector::Selector) -> BTreeSet<&'a str> {
    let matches = |labels: &podmodel::Labels| selector.matches_with(|key| labels.get(key));
    cluster.namespaces.iter().filter(|(_, labels)| matches(labels)).map(|(name, _)| &**name).collect()
}

#[cfg(test)]
mod tests;
