//! The elements of a plan.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use network::cidr::{IpNet, octets};
use network::nft::Element;

use super::layout::SetId;
use crate::plan::{PortPlan, Traffic};

/// An element of a set or map. The value of a range is its last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) set: SetId,
    pub(super) key: Box<[u8]>,
    pub(super) value: Option<Box<[u8]>>,
}

/// The numbers of a port's groups of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupIds {
    pub(super) cluster: u32,
    pub(super) local: u32,
}

/// A chain that chooses an endpoint: the map of its groups, the count of endpoints, and the affinity timeout in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Picker {
    pub(super) map: SetId,
    pub(super) count: u32,
    pub(super) affinity: u32,
}

/// The picker that the value of a group needs.
pub(super) fn picker_of(set: SetId, entry: &Entry) -> Option<Picker> {
    set.pickers()?;
    let word = |at: usize| {
        let bytes = entry.value.as_ref()?.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    Some(Picker { map: set, count: word(4)?, affinity: word(8)? })
}

/// All elements of a plan.
pub(super) fn entries(plan: &PortPlan, ids: GroupIds) -> Vec<Entry> {
    let mut list = List { plan, ids, entries: Vec::new() };
    list.set(SetId::ClusterIps, octets(plan.cluster_ip));
    list.internal();
    let addresses = plan.external_ips.iter().map(|address| (list.by_address(*address), EXTERNAL));
    let port = plan.node_port.map(|port| (list.by_port(port), NODE_PORT));
    let frontends: Vec<_> = addresses.chain(port).collect();
    frontends.into_iter().for_each(|(key, sets)| list.external(key, sets));
    list.firewall();
    list.groups();
    for address in &plan.hairpin {
        list.set(SetId::Hairpin, [octets(*address), octets(*address)].concat());
    }
    list.entries
}

/// The sets of external traffic: of addresses, or of node ports.
#[derive(Clone, Copy)]
struct ExternalSets {
    cluster: SetId,
    local: SetId,
    local_policy: SetId,
    reject: SetId,
    drop: SetId,
}

const EXTERNAL: ExternalSets = ExternalSets {
    cluster: SetId::External,
    local: SetId::ExternalLocal,
    local_policy: SetId::LocalPolicy,
    reject: SetId::Reject,
    drop: SetId::Drop,
};

const NODE_PORT: ExternalSets = ExternalSets {
    cluster: SetId::NodePorts,
    local: SetId::NodePortsLocal,
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
        self.entries.push(Entry { set, key: key.into(), value: None });
    }

    fn map(&mut self, set: SetId, key: Vec<u8>, value: Vec<u8>) {
        self.entries.push(Entry { set, key: key.into(), value: Some(value.into()) });
    }

    /// A group as the value of a frontend.
    fn group(&self, id: u32, endpoints: &[SocketAddr]) -> Vec<u8> {
        let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        let affinity = u32::try_from(self.plan.affinity.map_or(0, |time| time.as_secs())).unwrap_or(u32::MAX);
        [id, count, affinity].iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn cluster_group(&self) -> Vec<u8> {
        self.group(self.ids.cluster, &self.plan.cluster)
    }

    fn local_group(&self) -> Vec<u8> {
        self.group(self.ids.local, &self.plan.local)
    }

    fn internal(&mut self) {
        let key = self.by_address(self.plan.cluster_ip);
        match self.plan.internal {
            Traffic::Cluster => self.map(SetId::Services, key, self.cluster_group()),
            Traffic::Local => self.map(SetId::Services, key, self.local_group()),
            Traffic::Drop => self.set(SetId::Drop, key),
            Traffic::Reject => self.set(SetId::Reject, key),
        }
    }

    fn external(&mut self, key: Vec<u8>, sets: ExternalSets) {
        if self.plan.external == Traffic::Reject {
            return self.set(sets.reject, key);
        }
        self.map(sets.cluster, key.clone(), self.cluster_group());
        if self.plan.external_local {
            self.set(sets.local_policy, key.clone());
        }
        match self.plan.external {
            Traffic::Local => self.map(sets.local, key, self.local_group()),
            Traffic::Drop => self.set(sets.drop, key),
            Traffic::Cluster | Traffic::Reject => {}
        }
    }

    fn firewall(&mut self) {
        for address in &self.plan.firewalled {
            let key = self.by_address(*address);
            for range in &self.plan.sources {
                let [first, last] = ends(*range);
                self.map(SetId::Sources, [key.clone(), first].concat(), [key.clone(), last].concat());
            }
            self.set(SetId::Firewalled, key);
        }
    }

    /// The endpoints of the groups that a frontend uses.
    fn groups(&mut self) {
        let plan = self.plan;
        for (id, endpoints) in [(self.ids.cluster, &plan.cluster), (self.ids.local, &plan.local)] {
            for (index, endpoint) in endpoints.iter().enumerate() {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                let address = Element::join(&[&octets(endpoint.ip()), &endpoint.port().to_be_bytes()]);
                if plan.affinity.is_some() {
                    self.set(SetId::Members, [&id.to_ne_bytes()[..], &address].concat());
                }
                self.map(SetId::Endpoints, [id.to_ne_bytes(), index.to_ne_bytes()].concat(), address);
            }
        }
    }
}

/// The first and the last address of a range.
fn ends(range: IpNet) -> [Vec<u8>; 2] {
    [octets(range.network().address), octets(range.last())]
}

/// The affinity timeout of a picker.
pub(super) fn affinity_timeout(picker: Picker) -> Option<Duration> {
    (picker.affinity > 0).then(|| Duration::from_secs(u64::from(picker.affinity)))
}
