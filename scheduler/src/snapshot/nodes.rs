//! Adding, changing and removing nodes, and their search order.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Str;

use super::{NodeId, Snapshot};
use podmodel::{HostPort, Node, Pod, Resources};

/// A node and the resources its pods use. Copies with pods added or removed are used for simulation.
#[derive(Debug, Clone)]
pub struct NodeState {
    pub id: NodeId,
    pub node: Arc<Node>,
    pub requested: Resources,
    pub nonzero_milli_cpu: i64,
    pub nonzero_memory: i64,
    /// In order of arrival.
    pub pods: Vec<Arc<Pod>>,
    /// Host ports in use.
    pub ports: Vec<HostPort>,
}

impl NodeState {
    /// A node without pods.
    pub fn new(id: NodeId, node: Arc<Node>) -> NodeState {
        NodeState {
            id,
            node,
            requested: Resources::default(),
            nonzero_milli_cpu: 0,
            nonzero_memory: 0,
            pods: Vec::new(),
            ports: Vec::new(),
        }
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Adds a pod and its requests.
    pub fn add(&mut self, pod: Arc<Pod>) {
        let spec = &pod.spec;
        self.requested.add(&spec.requests);
        self.nonzero_milli_cpu += spec.nonzero_milli_cpu;
        self.nonzero_memory += spec.nonzero_memory;
        self.ports.extend(spec.ports.iter().cloned());
        self.pods.push(pod);
    }

    /// Returns the removed pod, if there was one.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let at = self.pods.iter().position(|pod| pod.uid == uid)?;
        let pod = self.pods.remove(at);
        let spec = &pod.spec;
        self.requested.subtract(&spec.requests);
        self.nonzero_milli_cpu -= spec.nonzero_milli_cpu;
        self.nonzero_memory -= spec.nonzero_memory;
        for port in &spec.ports {
            if let Some(at) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }
}

impl Snapshot {
    /// Adds or updates a node; nothing happens if no relevant field has changed.
    pub fn put_node(&mut self, node: Node) {
        let Some(&id) = self.by_name.get(&node.name) else { return self.add_node(node) };
        let Some(mut state) = self.slots[id.at()].take() else { return };
        if *state.node == node {
            self.slots[id.at()] = Some(state);
            return;
        }
        let is_moved = state.node.labels != node.labels;
        if is_moved {
            state.pods.iter().for_each(|pod| self.remove_from_index(pod, id));
            self.topology.remove_node(&state);
            self.is_order_stale |= state.node.zone() != node.zone();
        }
        self.images.remove(&state.node);
        self.images.add(&node);
        self.nodes_generation += 1;
        state.node = Arc::new(node);
        if is_moved {
            self.topology.add_node(&state);
            state.pods.iter().for_each(|pod| self.index(pod, id));
        }
        self.slots[id.at()] = Some(state);
        self.bump_generation(id);
    }

    fn add_node(&mut self, node: Node) {
        let id = self.free.pop().unwrap_or(NodeId(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        if id.at() == self.slots.len() {
            self.slots.push(None);
            self.generations.push(0);
            self.kept.push(false);
        }
        self.images.add(&node);
        self.nodes_generation += 1;
        let name = node.name.clone();
        let mut state = NodeState::new(id, Arc::new(node));
        self.topology.add_node(&state);
        for pod in self.orphans.remove(&name).unwrap_or_default() {
            self.index(&pod, id);
            state.add(pod);
        }
        self.update_slot(id, &name);
        self.by_name.insert(name, id);
        self.slots[id.at()] = Some(state);
        self.is_order_stale = true;
        self.bump_generation(id);
    }

    /// Its pods are kept: the node may return, and they count until they are deleted.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(id) = self.by_name.remove(name) else { return };
        let Some(state) = self.slots[id.at()].take() else { return };
        state.pods.iter().for_each(|pod| self.remove_from_index(pod, id));
        self.topology.remove_node(&state);
        self.images.remove(&state.node);
        self.nodes_generation += 1;
        if !state.pods.is_empty() {
            self.orphans.insert(Str::new(name), state.pods);
        }
        self.free.push(id);
        self.is_order_stale = true;
        self.bump_generation(id);
    }
}

/// Nodes alternating between zones, so that the first few are spread. Zones are sorted by name, nodes of a zone by
/// slot.
pub(super) fn alternate_zones<'a>(nodes: impl Iterator<Item = &'a NodeState>) -> Vec<NodeId> {
    let mut zones: BTreeMap<Str, Vec<NodeId>> = BTreeMap::new();
    for state in nodes {
        zones.entry(state.node.zone()).or_default().push(state.id);
    }
    let longest = zones.values().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|turn| zones.values().filter_map(move |zone| zone.get(turn)).copied()).collect()
}
