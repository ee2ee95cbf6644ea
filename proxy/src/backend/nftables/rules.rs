//! The chains and rules of a table, which do not depend on Services.

use std::net::IpAddr;

use network::cidr::{IpNet, next, octets};
use network::nft::{Batch, Data, Element, Expression, Field, Hook, Register, STATE_NEW, TYPE_LOCAL};

use super::layout::{Class, Frontend, LOCAL_SOURCES, NODE_ADDRESSES, SERVICE_CIDRS, SetId, each_set};
use crate::model::Family;
use crate::plan::{LocalTraffic, NodePortAddresses, NodeRules};

const DESTINATION_NAT: i32 = -100;
const SOURCE_NAT: i32 = 100;
const FILTER: i32 = 0;
const BEFORE_DESTINATION_NAT: i32 = DESTINATION_NAT - 10;
const TCP: &[u8] = &[6];
const NONE: &[u8] = &0u32.to_ne_bytes();
const LOCAL: &[u8] = &TYPE_LOCAL.to_ne_bytes();
const NEW: &[u8] = &STATE_NEW.to_ne_bytes();
/// The bit of the connection's status for a translated destination.
const TRANSLATED: &[u8] = &0x20u32.to_ne_bytes();
const R0: Register = Register(0);
const R1: Register = Register(1);
/// A register behind those that hold a key.
const R8: Register = Register(8);

pub(super) type Rule<'a> = Vec<Expression<'a>>;

/// Puts the table, its sets, chains and rules.
pub(super) fn put_table(batch: &mut Batch<'_>, rules: &NodeRules, mark: u32) {
    batch.create_table();
    each_set(rules.family, |set| batch.create_set(set));
    put_node_elements(batch, rules);
    let table = Table { rules, mark, interface: &interface_name(rules) };
    // A chain exists before a rule leads to it.
    for name in ["reject-packet", "firewall", "services", "external-local", "node-ports-local", "filter"] {
        batch.create_chain(name, None);
    }
    for frontend in Frontend::ALL {
        batch.create_chain(frontend.chain(), None);
        forward(rules.family, frontend).iter().for_each(|rule| batch.rule(frontend.chain(), rule));
    }
    for (name, rules) in table.chains() {
        rules.iter().for_each(|rule| batch.rule(name, rule));
    }
    for (name, hook, to) in [
        ("firewall-prerouting", Hook::filter(Hook::PREROUTING, BEFORE_DESTINATION_NAT), "firewall"),
        ("firewall-output", Hook::filter(Hook::OUTPUT, BEFORE_DESTINATION_NAT), "firewall"),
        ("prerouting", Hook::nat(Hook::PREROUTING, DESTINATION_NAT), "services"),
        ("output", Hook::nat(Hook::OUTPUT, DESTINATION_NAT), "services"),
        ("filter-prerouting", Hook::filter(Hook::PREROUTING, FILTER), "filter"),
        ("filter-output", Hook::filter(Hook::OUTPUT, FILTER), "filter"),
    ] {
        batch.create_chain(name, Some(hook));
        batch.rule(name, &[Expression::Jump(to)]);
    }
    batch.create_chain("postrouting", Some(Hook::nat(Hook::POSTROUTING, SOURCE_NAT)));
    table.masquerade().iter().for_each(|rule| batch.rule("postrouting", rule));
}

/// How often a number is chosen for which there may be no endpoint. More than half of the numbers have one, so that the
/// last try, among the first half only, is rare enough not to be noticed.
const TRIES: usize = 8;

/// Puts the chain of a class, and the rule that leads to it. The rule comes before those that exist.
pub(super) fn put_class(batch: &mut Batch<'_>, family: Family, class: Class) {
    let (frontend, chain) = (class.frontend, class.chain());
    batch.create_chain(&chain, None);
    let choose = |number: Choice| batch.rule(&chain, &to_endpoint(family, frontend, number));
    choices(class.size()).into_iter().for_each(choose);
    let mut rule = load_key(family, SetId::Class(class), R0);
    rule.extend([Expression::In(R0, class.set()), Expression::Goto(&chain)]);
    batch.insert_rule(frontend.chain(), &rule);
}

/// The number of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    First,
    Below(u32),
}

/// The numbers that are tried one after the other. Between two rules of a packet the endpoints may change, so that the
/// last one is that of an endpoint which always exists.
fn choices(size: u32) -> Vec<Choice> {
    let tries = match size {
        1 => 0,
        2 => 1,
        _ => TRIES,
    };
    let mut choices = vec![Choice::Below(size); tries];
    choices.extend((size > 2).then_some(Choice::Below(size / 2)));
    choices.push(Choice::First);
    choices
}

/// The rules behind those of classes. While a packet passes the rules, its destination may change from one class to
/// another one whose rule has been passed already: it is forwarded to the first endpoint.
fn forward(family: Family, frontend: Frontend) -> [Rule<'static>; 2] {
    let map = SetId::Affinity(frontend);
    let mut affinity = load_key(family, map, R0);
    affinity.push(Expression::Verdict(R0, map.name()));
    [affinity, to_endpoint(family, frontend, Choice::First)]
}

/// Translates to the endpoint with a number, if there is one.
fn to_endpoint(family: Family, frontend: Frontend, choice: Choice) -> Rule<'static> {
    let map = SetId::Endpoints(frontend);
    let number = Register(if frontend.is_by_port() { 2 } else { Fields::of(family).width + 2 });
    let mut rule = load_key(family, map, R0);
    rule.push(match choice {
        Choice::First => Expression::Value(number, NONE),
        Choice::Below(count) => Expression::Random(number, count),
    });
    rule.extend([Expression::Map(R0, map.name(), R0), translate(family, R0)]);
    rule
}

/// Translates the destination to the endpoint in the registers.
pub(super) fn translate(family: Family, at: Register) -> Expression<'static> {
    let fields = Fields::of(family);
    Expression::DestinationNat { family: fields.number, address: at, port: Register(at.0 + fields.width) }
}

/// Loads the packet's source.
pub(super) fn load_source(family: Family, at: Register) -> Expression<'static> {
    Expression::Load(Fields::of(family).source, at)
}

/// Loads the key of a set into registers.
fn load_key(family: Family, set: SetId, at: Register) -> Rule<'static> {
    let fields = Fields::of(family);
    let (mut rule, mut at) = (Vec::new(), at.0);
    if !set.is_by_port() {
        rule.push(Expression::Load(fields.destination, Register(at)));
        at += fields.width;
    }
    rule.push(Expression::Load(Field::TransportProtocol, Register(at)));
    rule.push(Expression::Load(Field::DestinationPort, Register(at + 1)));
    rule
}

/// The differences between IPv4 and IPv6.
#[derive(Clone, Copy)]
struct Fields {
    number: u8,
    source: Field,
    destination: Field,
    /// The number of registers of an address.
    width: u8,
    loopback: (&'static [u8], &'static [u8]),
}

impl Fields {
    fn of(family: Family) -> Fields {
        const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        match family {
            Family::V4 => Fields {
                number: 2,
                source: Field::Ipv4Source,
                destination: Field::Ipv4Destination,
                width: 1,
                loopback: (&[255, 0, 0, 0], &[127, 0, 0, 0]),
            },
            Family::V6 => Fields {
                number: 10,
                source: Field::Ipv6Source,
                destination: Field::Ipv6Destination,
                width: 4,
                loopback: (&[255; 16], &LOOPBACK),
            },
        }
    }
}

struct Table<'a> {
    rules: &'a NodeRules,
    mark: u32,
    /// The name of the pods' device, or how the names begin.
    interface: &'a [u8],
}

/// An exact name ends with a zero byte.
fn interface_name(rules: &NodeRules) -> Vec<u8> {
    match &rules.local_traffic {
        LocalTraffic::Interface(name) => [name.as_bytes(), &[0]].concat(),
        LocalTraffic::InterfacePrefix(prefix) => prefix.as_bytes().to_vec(),
        LocalTraffic::Unknown | LocalTraffic::Sources(_) => Vec::new(),
    }
}

impl<'a> Table<'a> {
    fn chains(&self) -> Vec<(&'static str, Vec<Rule<'a>>)> {
        let local = |cluster, local| self.local_policy(cluster, local);
        use Frontend::{External, ExternalLocal, NodePorts, NodePortsLocal};
        vec![
            ("reject-packet", reject(self.rules.family)),
            ("firewall", self.firewall()),
            ("services", self.services()),
            ("external-local", local(External, ExternalLocal)),
            ("node-ports-local", local(NodePorts, NodePortsLocal)),
            ("filter", self.filter()),
        ]
    }

    fn key(&self, set: SetId) -> Rule<'a> {
        load_key(self.rules.family, set, R0)
    }

    /// Drops packets to load balancers from sources that are not allowed.
    fn firewall(&self) -> Vec<Rule<'a>> {
        let fields = Fields::of(self.rules.family);
        let mut rule = self.key(SetId::Firewalled);
        rule.push(Expression::In(R0, SetId::Firewalled.name()));
        rule.push(Expression::Load(fields.source, Register(fields.width + 2)));
        rule.push(Expression::NotIn(R0, SetId::Sources.name()));
        rule.push(Expression::Drop);
        vec![unless_new(), rule]
    }

    /// Forwards packets to Services.
    fn services(&self) -> Vec<Rule<'a>> {
        let mut rules = Vec::new();
        rules.extend(self.masquerade_cluster_ips());
        let destination = Expression::Load(Fields::of(self.rules.family).destination, R0);
        let is_cluster_ip = Expression::In(R0, SetId::ClusterIps.name());
        rules.push(vec![destination, is_cluster_ip, jump_to(Frontend::Services)]);
        rules.push(self.matching(SetId::LocalPolicy, vec![Expression::Goto("external-local")]));
        rules.push(self.matching(SetId::Masquerade, self.marked_to(Frontend::External)));
        rules.push(self.matching(SetId::LocalPolicyPorts, vec![Expression::Goto("node-ports-local")]));
        rules.push(self.matching(SetId::MasqueradePorts, self.marked_to(Frontend::NodePorts)));
        rules
    }

    /// Applies steps to packets whose destination is in a set.
    fn matching(&self, set: SetId, then: Rule<'a>) -> Rule<'a> {
        let mut rule = if set.is_by_port() { self.to_node_port() } else { Vec::new() };
        rule.extend(self.key(set));
        rule.push(Expression::In(R0, set.name()));
        rule.extend(then);
        rule
    }

    /// Packets to cluster IPs from outside of the cluster may be forwarded to other nodes, whose replies must return here.
    fn masquerade_cluster_ips(&self) -> Option<Rule<'a>> {
        let condition = match (self.rules.masquerade_all, self.pod_source(false)) {
            (true, _) => Vec::new(),
            (false, Some(condition)) => condition,
            (false, None) => return None,
        };
        let destination = Fields::of(self.rules.family).destination;
        let mut rule = vec![Expression::Load(destination, R0), Expression::In(R0, SetId::ClusterIps.name())];
        rule.extend(condition);
        rule.extend(self.set_mark());
        Some(rule)
    }

    /// Requests masquerading, and forwards.
    fn marked_to(&self, frontend: Frontend) -> Rule<'a> {
        let mut rule = self.set_mark();
        rule.push(jump_to(frontend));
        rule
    }

    /// With the policy Local, clients on this node use the endpoints of all nodes.
    fn local_policy(&self, cluster: Frontend, local: Frontend) -> Vec<Rule<'a>> {
        let from_node = || vec![Expression::Load(Field::SourceType, R0), Expression::Equal(R0, LOCAL)];
        let mut rules = Vec::new();
        if let Some(mut rule) = self.pod_source(true) {
            rule.push(jump_to(cluster));
            rules.push(rule);
        }
        let mut rule = from_node();
        rule.extend(self.marked_to(cluster));
        rules.push(rule);
        rules.push(vec![jump_to(local)]);
        rules
    }

    /// Rejects and drops packets that were not forwarded.
    fn filter(&self) -> Vec<Rule<'a>> {
        let destination = Fields::of(self.rules.family).destination;
        let reject = Expression::Goto("reject-packet");
        let mut rules = vec![unless_new()];
        for (set, verdict) in [
            (SetId::Reject, reject.clone()),
            (SetId::Drop, Expression::Drop),
            (SetId::RejectPorts, reject.clone()),
            (SetId::DropPorts, Expression::Drop),
        ] {
            rules.push(self.matching(set, vec![verdict]));
        }
        // Ports of a Service that do not exist, and addresses without a Service, which must not leave the node.
        // An address that this node serves itself, as a node-local DNS does, does not leave it.
        let is_foreign = [Expression::Load(Field::DestinationType, R0), Expression::NotEqual(R0, LOCAL)];
        rules.push(vec![Expression::Load(destination, R0), Expression::In(R0, SetId::ClusterIps.name()), reject]);
        let mut unknown = is_foreign.to_vec();
        unknown.extend([Expression::Load(destination, R0), Expression::In(R0, SERVICE_CIDRS), Expression::Drop]);
        rules.push(unknown);
        rules
    }

    fn masquerade(&self) -> Vec<Rule<'a>> {
        let fields = Fields::of(self.rules.family);
        let marked = vec![
            Expression::Load(Field::Mark, R0),
            Expression::Bits { from: R0, to: R1, mask: self.mark, xor: 0 },
            Expression::NotEqual(R1, NONE),
            Expression::Bits { from: R0, to: R0, mask: u32::MAX, xor: self.mark },
            Expression::SetMark(R0),
            Expression::MasqueradeRandom,
        ];
        let hairpin = vec![
            Expression::Load(Field::ConnectionStatus, R0),
            Expression::Mask(R0, TRANSLATED),
            Expression::NotEqual(R0, NONE),
            Expression::Load(fields.source, R0),
            Expression::Load(fields.destination, Register(fields.width)),
            Expression::In(R0, SetId::Hairpin.name()),
            Expression::MasqueradeRandom,
        ];
        vec![marked, hairpin]
    }

    /// Uses registers from R8 only.
    fn set_mark(&self) -> Rule<'a> {
        vec![
            Expression::Load(Field::Mark, R8),
            Expression::Bits { from: R8, to: R8, mask: !self.mark, xor: self.mark },
            Expression::SetMark(R8),
        ]
    }

    /// Matches packets of pods on this node, or all others; None if they cannot be recognised.
    fn pod_source(&self, is_pod: bool) -> Option<Rule<'a>> {
        let name = self.interface;
        match &self.rules.local_traffic {
            LocalTraffic::Unknown => None,
            LocalTraffic::Sources(_) => Some(vec![
                Expression::Load(Fields::of(self.rules.family).source, R0),
                if is_pod { Expression::In(R0, LOCAL_SOURCES) } else { Expression::NotIn(R0, LOCAL_SOURCES) },
            ]),
            LocalTraffic::Interface(_) | LocalTraffic::InterfacePrefix(_) => Some(vec![
                Expression::Load(Field::InputName, R0),
                if is_pod { Expression::Equal(R0, name) } else { Expression::NotEqual(R0, name) },
            ]),
        }
    }

    /// Matches packets to an address at which node ports are served.
    fn to_node_port(&self) -> Rule<'a> {
        let fields = Fields::of(self.rules.family);
        match &self.rules.node_ports {
            NodePortAddresses::All => vec![
                Expression::Load(Field::DestinationType, R0),
                Expression::Equal(R0, LOCAL),
                Expression::Load(fields.destination, R0),
                Expression::Mask(R0, fields.loopback.0),
                Expression::NotEqual(R0, fields.loopback.1),
            ],
            NodePortAddresses::Only(_) => {
                vec![Expression::Load(fields.destination, R0), Expression::In(R0, NODE_ADDRESSES)]
            }
        }
    }
}

fn jump_to(frontend: Frontend) -> Expression<'static> {
    Expression::Jump(frontend.chain())
}

fn unless_new() -> Rule<'static> {
    vec![
        Expression::Load(Field::ConnectionState, R0),
        Expression::Mask(R0, NEW),
        Expression::Equal(R0, NONE),
        Expression::Return,
    ]
}

/// A reset ends a TCP connection attempt on every client; other protocols understand only ICMP.
fn reject(family: Family) -> Vec<Rule<'static>> {
    let port_unreachable = match family {
        Family::V4 => 3,
        Family::V6 => 4,
    };
    let tcp = [Expression::Load(Field::TransportProtocol, R0), Expression::Equal(R0, TCP), Expression::RejectReset];
    vec![tcp.into(), vec![Expression::RejectUnreachable(port_unreachable)]]
}

fn put_node_elements(batch: &mut Batch<'_>, rules: &NodeRules) {
    if let NodePortAddresses::Only(addresses) = &rules.node_ports {
        let usable = addresses.iter().filter(|address| !address.is_loopback());
        let elements: Vec<Element> = usable.map(|address| single(*address)).collect();
        batch.create_elements(NODE_ADDRESSES, &elements);
    }
    if let LocalTraffic::Sources(ranges) = &rules.local_traffic {
        batch.create_elements(LOCAL_SOURCES, &intervals(ranges));
    }
    batch.create_elements(SERVICE_CIDRS, &intervals(&rules.service_cidrs));
}

fn single(address: IpAddr) -> Element {
    Element::new(octets(address), Data::None, "")
}

/// Ranges as the starts and ends that a set of intervals has. Ranges inside of others are left out.
fn intervals(ranges: &[IpNet]) -> Vec<Element> {
    let mut ranges: Vec<IpNet> = ranges.iter().map(IpNet::network).collect();
    ranges.sort_unstable_by_key(|range| (range.address, range.prefix()));
    let mut elements: Vec<Element> = Vec::new();
    let mut covered: Option<IpNet> = None;
    for range in ranges {
        if covered.is_some_and(|wider| wider.contains(range.address)) {
            continue;
        }
        covered = Some(range);
        let start = octets(range.address);
        // A range that begins where the last one ends continues it.
        match elements.last() {
            Some(end) if end.interval_end && end.key == start => drop(elements.pop()),
            _ => elements.push(Element::new(start, Data::None, "")),
        }
        if let Some(after) = next(range.last()) {
            elements.push(Element { interval_end: true, ..single(after) });
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_choices_always_have_an_endpoint() {
        assert_eq!(choices(1), [Choice::First]);
        assert_eq!(choices(2), [Choice::Below(2), Choice::First]);
        let four = choices(4);
        assert_eq!(four.len(), TRIES + 2);
        assert_eq!(four[TRIES - 1..], [Choice::Below(4), Choice::Below(2), Choice::First]);
    }
}
