//! The elements of a plan.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use network::cidr::{IpNet, octets};
use network::nft::{Data, Element};

use super::layout::{Class, Frontend, SetId};
use crate::plan::{PortPlan, Traffic};

/// A claim: an element of a set, or a destination with everything that forwards its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) target: Target,
    pub(super) key: Box<[u8]>,
    pub(super) value: Value,
}

/// The target of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    /// An element of this set.
    Set(SetId),
    /// The packets to a destination. They belong to one port as a whole: its endpoints must not mix with those of
    /// another port.
    Forward(Frontend),
}

/// The value of an entry besides the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    None,
    /// The last key of a range.
    End(Box<[u8]>),
    /// The endpoints of a destination, one of which is chosen at random.
    Endpoints(Arc<[SocketAddr]>),
    /// The number of a group of endpoints with session affinity.
    Affinity(u32),
}

/// The name of the chain of a group with session affinity.
pub(super) fn affinity_chain(group: u32) -> String {
    format!("affinity-{group:08x}")
}

/// An element with its set.
pub(super) type SetElement = (SetId, Element);

/// The elements of a claim.
pub(super) fn elements_of(target: Target, key: &[u8], value: &Value) -> Vec<SetElement> {
    match (target, value) {
        (Target::Set(set), Value::End(end)) => {
            vec![(set, Element { key_end: Some(end.to_vec()), ..Element::new(key.to_vec(), Data::None, "") })]
        }
        (Target::Set(set), _) => vec![(set, Element::new(key.to_vec(), Data::None, ""))],
        (Target::Forward(frontend), Value::Affinity(group)) => {
            let data = Data::Goto(affinity_chain(*group));
            vec![(SetId::Affinity(frontend), Element::new(key.to_vec(), data, ""))]
        }
        (Target::Forward(frontend), Value::Endpoints(endpoints)) => forward_elements(frontend, key, endpoints),
        (Target::Forward(_), Value::None | Value::End(_)) => Vec::new(),
    }
}

/// The destination in the set of its class, and an element for each endpoint.
fn forward_elements(frontend: Frontend, key: &[u8], endpoints: &[SocketAddr]) -> Vec<SetElement> {
    let class = Class::of(frontend, endpoints.len());
    let numbered = (0..class.size()).zip(endpoints).map(|(number, endpoint)| {
        let address = Element::join(&[&octets(endpoint.ip()), &endpoint.port().to_be_bytes()]);
        let key = [key, &number.to_ne_bytes()].concat();
        (SetId::Endpoints(frontend), Element::new(key, Data::Value(address), ""))
    });
    let destination = Element::new(key.to_vec(), Data::None, "");
    [(SetId::Class(class), destination)].into_iter().chain(numbered).collect()
}

/// The numbers of a port's groups of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupIds {
    pub(super) cluster: u32,
    pub(super) local: u32,
}

/// Endpoints whose clients stay with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AffinityGroup {
    pub(super) id: u32,
    pub(super) timeout: Duration,
    pub(super) endpoints: Vec<SocketAddr>,
}

/// The groups of a plan with affinity.
pub(super) fn affinity_groups(plan: &PortPlan, ids: GroupIds) -> Vec<AffinityGroup> {
    let Some(timeout) = plan.affinity else { return Vec::new() };
    let group = |(id, endpoints): (u32, &Vec<SocketAddr>)| AffinityGroup { id, timeout, endpoints: endpoints.clone() };
    let groups = [(ids.cluster, &plan.cluster), (ids.local, &plan.local)];
    groups.into_iter().filter(|(_, endpoints)| !endpoints.is_empty()).map(group).collect()
}

/// All elements of a plan.
pub(super) fn entries(plan: &PortPlan, ids: GroupIds) -> Vec<Entry> {
    let mut list = List { plan, ids, entries: Vec::new() };
    list.set(SetId::ClusterIps, octets(plan.cluster_ip));
    list.internal();
    for address in &plan.external_ips {
        list.external(list.by_address(*address), EXTERNAL);
    }
    if let Some(port) = plan.node_port {
        list.external(list.by_port(port), NODE_PORT);
    }
    list.firewall();
    for address in &plan.hairpin {
        list.set(SetId::Hairpin, [octets(*address), octets(*address)].concat());
    }
    list.entries
}

/// The sets of external traffic: of addresses, or of node ports.
#[derive(Clone, Copy)]
struct ExternalSets {
    cluster: Frontend,
    local: Frontend,
    masquerade: SetId,
    local_policy: SetId,
    reject: SetId,
    drop: SetId,
}

const EXTERNAL: ExternalSets = ExternalSets {
    cluster: Frontend::External,
    local: Frontend::ExternalLocal,
    masquerade: SetId::Masquerade,
    local_policy: SetId::LocalPolicy,
    reject: SetId::Reject,
    drop: SetId::Drop,
};

const NODE_PORT: ExternalSets = ExternalSets {
    cluster: Frontend::NodePorts,
    local: Frontend::NodePortsLocal,
    masquerade: SetId::MasqueradePorts,
    local_policy: SetId::LocalPolicyPorts,
    reject: SetId::RejectPorts,
    drop: SetId::DropPorts,
};

struct List<'a> {
    plan: &'a PortPlan,
    ids: GroupIds,
    entries: Vec<Entry>,
}

impl List<'_> {
    fn by_address(&self, address: IpAddr) -> Vec<u8> {
        let (protocol, port) = (self.plan.protocol.number(), self.plan.port);
        Element::join(&[&octets(address), &[protocol], &port.to_be_bytes()])
    }

    fn by_port(&self, port: u16) -> Vec<u8> {
        Element::join(&[&[self.plan.protocol.number()], &port.to_be_bytes()])
    }

    fn set(&mut self, set: SetId, key: Vec<u8>) {
        self.entry(set, key, Value::None);
    }

    fn entry(&mut self, set: SetId, key: Vec<u8>, value: Value) {
        self.entries.push(Entry { target: Target::Set(set), key: key.into(), value });
    }

    /// Leads a destination to the endpoints of all nodes.
    fn forward_to_cluster(&mut self, frontend: Frontend, key: Vec<u8>) {
        let plan = self.plan;
        self.forward(frontend, key, self.ids.cluster, &plan.cluster);
    }

    /// Leads a destination to the endpoints of this node.
    fn forward_to_local(&mut self, frontend: Frontend, key: Vec<u8>) {
        let plan = self.plan;
        self.forward(frontend, key, self.ids.local, &plan.local);
    }

    fn forward(&mut self, frontend: Frontend, key: Vec<u8>, group: u32, endpoints: &[SocketAddr]) {
        let value = match self.plan.affinity {
            Some(_) => Value::Affinity(group),
            None => Value::Endpoints(endpoints.into()),
        };
        self.entries.push(Entry { target: Target::Forward(frontend), key: key.into(), value });
    }

    fn internal(&mut self) {
        let key = self.by_address(self.plan.cluster_ip);
        match self.plan.internal {
            Traffic::Cluster => self.forward_to_cluster(Frontend::Services, key),
            Traffic::Local => self.forward_to_local(Frontend::Services, key),
            Traffic::Drop => self.set(SetId::Drop, key),
            Traffic::Reject => self.set(SetId::Reject, key),
        }
    }

    fn external(&mut self, key: Vec<u8>, sets: ExternalSets) {
        if self.plan.external == Traffic::Reject {
            return self.set(sets.reject, key);
        }
        self.forward_to_cluster(sets.cluster, key.clone());
        let policy = if self.plan.external_local { sets.local_policy } else { sets.masquerade };
        self.set(policy, key.clone());
        match self.plan.external {
            Traffic::Local => self.forward_to_local(sets.local, key),
            Traffic::Drop => self.set(sets.drop, key),
            Traffic::Cluster | Traffic::Reject => {}
        }
    }

    fn firewall(&mut self) {
        for address in &self.plan.firewalled {
            let key = self.by_address(*address);
            for range in &self.plan.sources {
                let [first, last] = ends(*range).map(|end| [key.clone(), end].concat());
                self.entry(SetId::Sources, first, Value::End(last.into()));
            }
            self.set(SetId::Firewalled, key);
        }
    }
}

/// The first and the last address of a range.
fn ends(range: IpNet) -> [Vec<u8>; 2] {
    [octets(range.network().address), octets(range.last())]
}
