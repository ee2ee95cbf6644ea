//! NetworkPolicies. What cannot be read allows nothing, and is reported; everything else of the policy stays in force.

use api::selector::Selector;
use api::{Str, Tree};
use network::cidr::IpNet;

use super::Protocol;

/// The direction of connections that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Connections to the selected pods.
    Ingress,
    /// Connections from the selected pods.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// The name in `policyTypes`.
    fn policy_type(self) -> &'static str {
        match self {
            Direction::Ingress => "Ingress",
            Direction::Egress => "Egress",
        }
    }

    /// The fields of the rules, and of the peers of a rule.
    fn fields(self) -> (&'static str, &'static str) {
        match self {
            Direction::Ingress => ("ingress", "from"),
            Direction::Egress => ("egress", "to"),
        }
    }
}

/// A NetworkPolicy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its namespace, which has the pods that it selects.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// Its UID.
    pub uid: Str,
    /// The pods that it isolates.
    pub selector: Selector,
    ingress: Option<Vec<Rule>>,
    egress: Option<Vec<Rule>>,
    /// The parts that could not be read, each with its path.
    pub problems: Vec<String>,
}

/// Connections that are allowed: from or to any of the peers, at any of the ports.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The other side.
    pub peers: Peers,
    /// The destination's ports.
    pub ports: Ports,
}

/// The peers of a rule.
#[derive(Clone, Debug)]
pub enum Peers {
    /// Everything, inside and outside of the cluster.
    Any,
    /// These only; none if none of them could be read.
    Listed(Vec<Peer>),
}

/// A peer.
#[derive(Clone, Debug)]
pub enum Peer {
    /// Pods by their labels and those of their namespaces.
    Pods {
        /// The namespaces.
        namespaces: PeerNamespaces,
        /// The pods in them.
        pods: Selector,
    },
    /// Addresses.
    Block {
        /// The network.
        cidr: IpNet,
        /// Parts of it that are excluded.
        except: Vec<IpNet>,
    },
}

/// The namespaces of a peer.
#[derive(Clone, Debug)]
pub enum PeerNamespaces {
    /// That of the policy.
    Own,
    /// By their labels.
    Matching(Selector),
}

/// The ports of a rule.
#[derive(Clone, Debug)]
pub enum Ports {
    /// Every protocol and port.
    Any,
    /// These only; none if none of them could be read.
    Listed(Vec<Port>),
}

/// A port of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The numbers.
    pub numbers: PortNumbers,
}

/// The numbers of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortNumbers {
    /// All ports of the protocol.
    Any,
    /// The first and the last.
    Range(u16, u16),
    /// A named port of the destination pod.
    Named(Str),
}

impl Policy {
    /// Reads a NetworkPolicy.
    pub fn read(tree: &Tree) -> Policy {
        let spec = tree.at("spec");
        let mut problems = Vec::new();
        // The field is not optional: without it, the selector is the empty one.
        let selector = match spec.at("podSelector") {
            Tree::Null => Selector::everything(),
            selector => selector_of(selector, "spec.podSelector", &mut problems).unwrap_or_else(Selector::nothing),
        };
        let mut rules = |direction| isolates(spec, direction).then(|| read_rules(spec, direction, &mut problems));
        let (ingress, egress) = (rules(Direction::Ingress), rules(Direction::Egress));
        Policy {
            namespace: Str::new(tree.str("metadata.namespace")),
            name: Str::new(tree.str("metadata.name")),
            uid: Str::new(tree.str("metadata.uid")),
            selector,
            ingress,
            egress,
            problems,
        }
    }

    /// The rules of a direction; None if the policy does not isolate pods in that direction.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }
}

/// Without `policyTypes`, a policy is about ingress, and about egress if it has rules for it.
fn isolates(spec: &Tree, direction: Direction) -> bool {
    let types = spec.list("policyTypes");
    match direction {
        Direction::Ingress if types.is_empty() => true,
        Direction::Egress if types.is_empty() => !spec.list("egress").is_empty(),
        _ => types.iter().any(|name| name.as_str() == Some(direction.policy_type())),
    }
}

fn read_rules(spec: &Tree, direction: Direction, problems: &mut Vec<String>) -> Vec<Rule> {
    let (field, peers_field) = direction.fields();
    let rules = spec.list(field).iter().enumerate();
    let mut read = |(index, rule): (usize, &Tree)| {
        let path = format!("spec.{field}[{index}]");
        let peers = rule.list(peers_field);
        let ports = rule.list("ports");
        Rule {
            peers: if peers.is_empty() {
                Peers::Any
            } else {
                Peers::Listed(read_list(peers, &format!("{path}.{peers_field}"), problems, read_peer))
            },
            ports: if ports.is_empty() {
                Ports::Any
            } else {
                Ports::Listed(read_list(ports, &format!("{path}.ports"), problems, read_port))
            },
        }
    };
    rules.map(&mut read).collect()
}

/// Reads the entries of a list, without those that are invalid.
fn read_list<T>(
    list: &[Tree],
    path: &str,
    problems: &mut Vec<String>,
    read: fn(&Tree, &str, &mut Vec<String>) -> Option<T>,
) -> Vec<T> {
    let entries = list.iter().enumerate();
    entries.filter_map(|(index, entry)| read(entry, &format!("{path}[{index}]"), problems)).collect()
}

fn selector_of(selector: &Tree, path: &str, problems: &mut Vec<String>) -> Option<Selector> {
    Selector::from_object(selector).map_err(|error| problems.push(format!("{path}: {error}"))).ok()
}

fn read_peer(peer: &Tree, path: &str, problems: &mut Vec<String>) -> Option<Peer> {
    let (pods, namespaces) = (peer.at("podSelector"), peer.at("namespaceSelector"));
    let has_selector = !pods.is_null() || !namespaces.is_null();
    match peer.at("ipBlock") {
        Tree::Null if !has_selector => {
            problems.push(format!("{path}: must specify a peer"));
            None
        }
        Tree::Null => {
            let pods = match pods {
                Tree::Null => Selector::everything(),
                selector => selector_of(selector, &format!("{path}.podSelector"), problems)?,
            };
            let namespaces = match namespaces {
                Tree::Null => PeerNamespaces::Own,
                selector => {
                    let path = format!("{path}.namespaceSelector");
                    PeerNamespaces::Matching(selector_of(selector, &path, problems)?)
                }
            };
            Some(Peer::Pods { namespaces, pods })
        }
        _ if has_selector => {
            problems.push(format!("{path}: may not specify both ipBlock and another peer"));
            None
        }
        block => read_block(block, path, problems),
    }
}

/// A block with an exception that cannot be read allows nothing, since it would allow too much without it.
fn read_block(block: &Tree, path: &str, problems: &mut Vec<String>) -> Option<Peer> {
    let mut network = |text: &str, field: &str| {
        let parsed = text.parse::<IpNet>();
        parsed.map_err(|error| problems.push(format!("{path}.ipBlock.{field}: {error}"))).ok()
    };
    let cidr = network(block.str("cidr"), "cidr")?;
    let except = block.list("except").iter();
    let except: Option<Vec<IpNet>> = except.map(|text| network(text.as_str().unwrap_or(""), "except")).collect();
    Some(Peer::Block { cidr, except: except? })
}

fn read_port(port: &Tree, path: &str, problems: &mut Vec<String>) -> Option<Port> {
    let Some(protocol) = Protocol::parse(port.str("protocol")) else {
        problems.push(format!("{path}.protocol: unknown protocol {:?}", port.str("protocol")));
        return None;
    };
    let numbers = port_numbers(port);
    if numbers.is_none() {
        problems.push(format!("{path}: invalid port or endPort"));
    }
    Some(Port { protocol, numbers: numbers? })
}

fn port_numbers(port: &Tree) -> Option<PortNumbers> {
    let number = |value: i64| u16::try_from(value).ok().filter(|number| *number != 0);
    match (port.at("port"), port.at("endPort")) {
        (Tree::Null, Tree::Null) => Some(PortNumbers::Any),
        (Tree::Str(name), Tree::Null) => Some(PortNumbers::Named(name.clone())),
        (Tree::Int(first), Tree::Null) => number(*first).map(|first| PortNumbers::Range(first, first)),
        (Tree::Int(first), Tree::Int(last)) if first <= last => {
            Some(PortNumbers::Range(number(*first)?, number(*last)?))
        }
        _ => None,
    }
}
