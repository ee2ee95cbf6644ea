//! The cluster as decisions see it: nodes in dense slots with the resources their pods use, updated by each change.
//! Nothing here calls the API, and nothing is recomputed per cycle that a change could update.

mod affinity;
mod counts;
mod devices;
mod images;
mod matching;
mod nodes;
mod nominated;
mod objects;
mod pods;
mod selectors;
mod storage;
mod topology;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{Str, Tree};

use podmodel::{Labels, Pod};

pub(crate) use affinity::terms_of;
pub use affinity::{AffinityIndex, TermEffect};
pub use counts::Counts;
pub use devices::Devices;
pub use images::ImageIndex;
pub use matching::{CountQuery, MatchIndex, PodSelector};
pub use nodes::NodeState;
pub use objects::{Kind, NoObjects, Objects};
pub use selectors::SelectorIndex;
pub use storage::Storage;
pub(crate) use topology::Domain;
pub use topology::{Domains, KeyId, Topology};

/// The slot of a node. It is stable while the node exists, and then reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The index into arrays of nodes.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// Labels of namespaces by name.
pub type Namespaces = BTreeMap<Str, Labels>;

/// The scheduler's view of the cluster, updated by each change.
pub struct Snapshot {
    /// By [`NodeId`]; None if the node was deleted.
    slots: Vec<Option<NodeState>>,
    free: Vec<NodeId>,
    by_name: HashMap<Str, NodeId>,
    /// By [`NodeId`]: increases with each change of the node or its pods; 0 for none.
    generations: Vec<u64>,
    generation: u64,
    /// Increases with each change of a node itself.
    nodes_generation: u64,
    /// All nodes, alternating between zones. Rebuilt by [`Snapshot::update_order`].
    order: Vec<NodeId>,
    is_order_stale: bool,
    /// By [`NodeId`]: names at the time the order was built.
    names: Arc<[Str]>,
    /// Assigned pods, by uid.
    placed: HashMap<Str, PlacedPod>,
    /// Pods by the name of a missing node.
    orphans: BTreeMap<Str, Vec<Arc<Pod>>>,
    /// Unscheduled pods by the name of their nominated node.
    nominated: BTreeMap<Str, Vec<Arc<Pod>>>,
    /// The same by uid.
    nominated_at: HashMap<Str, Str>,
    /// By [`NodeId`]: whether a pod is nominated to the node.
    kept: Vec<bool>,
    /// Labels of namespaces.
    namespaces: Namespaces,
    pub topology: Topology,
    pub affinity: AffinityIndex,
    pub matching: MatchIndex,
    pub images: ImageIndex,
    pub selectors: SelectorIndex,
    /// Claims, volumes and related objects.
    pub storage: Storage,
    /// Resource claims and the devices that they can get.
    pub devices: Devices,
    pub objects: Arc<dyn Objects>,
}

struct PlacedPod {
    pod: Arc<Pod>,
    /// The binding is not confirmed yet.
    is_assumed: bool,
}

impl Snapshot {
    /// A snapshot without nodes and pods.
    pub fn new(objects: Arc<dyn Objects>) -> Snapshot {
        Snapshot {
            slots: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            generations: Vec::new(),
            generation: 0,
            order: Vec::new(),
            is_order_stale: false,
            names: Arc::default(),
            placed: HashMap::new(),
            orphans: BTreeMap::new(),
            nominated: BTreeMap::new(),
            nominated_at: HashMap::new(),
            kept: Vec::new(),
            namespaces: Namespaces::new(),
            topology: Topology::default(),
            affinity: AffinityIndex::default(),
            matching: MatchIndex::default(),
            images: ImageIndex::default(),
            selectors: SelectorIndex::default(),
            nodes_generation: 0,
            storage: Storage::of(&*objects),
            devices: Devices::of(&*objects),
            objects,
        }
    }

    /// Rebuilds the node order if needed. Called once before a decision.
    pub(crate) fn update_order(&mut self) {
        if std::mem::take(&mut self.is_order_stale) {
            self.order = nodes::alternate_zones(self.slots.iter().flatten());
            let name =
                |slot: &Option<NodeState>| slot.as_ref().map(|state| state.node.name.clone()).unwrap_or_default();
            self.names = self.slots.iter().map(name).collect();
        }
    }

    /// All nodes in search order.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Names of nodes by slot.
    pub fn names(&self) -> Arc<[Str]> {
        self.names.clone()
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.by_name.len()
    }

    /// The length of arrays indexed by [`NodeId`].
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The node of a slot.
    pub fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.slots.get(id.at())?.as_ref()
    }

    /// The node of a name.
    pub fn find(&self, name: &str) -> Option<&NodeState> {
        self.node(*self.by_name.get(name)?)
    }

    /// Nodes by slot.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.slots.iter().flatten()
    }

    pub(crate) fn generation_of(&self, id: NodeId) -> u64 {
        self.generations.get(id.at()).copied().unwrap_or(0)
    }

    /// Increases with every change of a node or assigned pod.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Increases with every change of a node itself.
    pub(crate) fn nodes_generation(&self) -> u64 {
        self.nodes_generation
    }

    /// Labels of a namespace; empty if it is unknown.
    pub(crate) fn namespace_labels(&self, namespace: &str) -> &Labels {
        static NONE: std::sync::OnceLock<Labels> = std::sync::OnceLock::new();
        self.namespaces.get(namespace).unwrap_or_else(|| NONE.get_or_init(Labels::default))
    }

    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        if self.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(Str::new(name), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        self.matching.namespaces_changed();
    }

    /// The labels of namespaces.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// An object besides pods, nodes and namespaces was added, changed or deleted.
    pub(crate) fn object_changed(&mut self, kind: Kind, old: Option<&Tree>, new: Option<&Tree>) {
        match (old, new) {
            (_, Some(new)) => {
                self.selectors.put(kind, new);
                self.storage.put(kind, new);
                self.devices.put(kind, new);
            }
            (Some(old), None) => {
                self.selectors.remove(kind, old);
                self.storage.remove(kind, old);
                self.devices.remove(kind, old);
            }
            (None, None) => {}
        }
        if kind == Kind::DeviceClass {
            // Classes decide which resources nodes have to provide themselves.
            self.bump_all_generations();
        }
    }

    /// Tracks the counts of a query from now on.
    pub(crate) fn track_counts(&mut self, query: CountQuery) {
        self.matching.put(query, &self.namespaces);
    }

    /// Tracks the domains of a key from now on.
    pub fn track_key(&mut self, key: &str) {
        self.topology.track_key(key, self.slots.iter().flatten());
    }

    fn bump_all_generations(&mut self) {
        let ids: Vec<NodeId> = self.slots.iter().flatten().map(|state| state.id).collect();
        ids.into_iter().for_each(|id| self.bump_generation(id));
    }

    fn bump_generation(&mut self, id: NodeId) {
        self.generation += 1;
        if let Some(slot) = self.generations.get_mut(id.at()) {
            *slot = self.generation;
        }
    }
}

#[cfg(test)]
mod tests;
