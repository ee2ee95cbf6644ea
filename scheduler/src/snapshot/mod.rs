//! The cluster as decisions see it: nodes in dense slots with what their pods take of them, kept up to date
//! by each change. Nothing here asks the API; nothing is computed anew for a cycle that a change could have
//! brought up to date.

mod affinity;
mod alike;
mod counts;
mod images;
mod matching;
mod nodes;
mod nominated;
mod objects;
mod pods;
mod storage;
mod topology;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{Str, Tree};

use crate::model::{Labels, Pod};

pub use affinity::{AffinityIndex, Wish, wishes};
pub use alike::AlikeIndex;
pub use counts::Counts;
pub use images::ImageIndex;
pub use matching::{MatchIndex, Question, Who};
pub use nodes::NodeState;
pub use objects::{Kind, NoObjects, Objects};
pub use storage::Storage;
pub use topology::{Domain, Domains, KeyId, Topology};

/// The slot of a node. It stays while the node is there; then another may get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// Labels of namespaces by name.
pub type Namespaces = BTreeMap<Str, Labels>;

pub struct Snapshot {
    /// By [`NodeId`]; None where a node has gone.
    slots: Vec<Option<NodeState>>,
    free: Vec<NodeId>,
    by_name: HashMap<Str, NodeId>,
    /// By [`NodeId`]: moves with each change of the node or of its pods, and never comes back. 0 for none.
    generations: Vec<u64>,
    generation: u64,
    /// Moves with each change of a node itself, whatever its pods do.
    nodes_generation: u64,
    /// All nodes, zone by zone in turn. Made anew by [`Snapshot::settle`].
    order: Vec<NodeId>,
    is_order_stale: bool,
    /// By [`NodeId`]: names, as they were when the order was made.
    names: Arc<[Str]>,
    /// Pods that have a node, by uid.
    placed: HashMap<Str, Placed>,
    /// Pods by the name of a node that is not there.
    orphans: BTreeMap<Str, Vec<Arc<Pod>>>,
    /// Waiting pods by the name of the node that is kept for them.
    nominated: BTreeMap<Str, Vec<Arc<Pod>>>,
    /// The same by uid.
    nominated_at: HashMap<Str, Str>,
    /// By [`NodeId`]: whether the node is kept for anybody.
    kept: Vec<bool>,
    /// Labels of namespaces.
    namespaces: Namespaces,
    pub topology: Topology,
    pub affinity: AffinityIndex,
    pub matching: MatchIndex,
    pub images: ImageIndex,
    pub alike: AlikeIndex,
    /// Claims, volumes and what belongs to them.
    pub storage: Storage,
    pub objects: Arc<dyn Objects>,
}

struct Placed {
    pod: Arc<Pod>,
    /// The binding is not confirmed yet.
    is_assumed: bool,
}

impl Snapshot {
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
            alike: AlikeIndex::default(),
            nodes_generation: 0,
            storage: Storage::of(&*objects),
            objects,
        }
    }

    /// Brings up to date what changes leave for later. Called once before a decision.
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.is_order_stale) {
            self.order = nodes::in_turn(self.slots.iter().flatten());
            let name =
                |slot: &Option<NodeState>| slot.as_ref().map(|state| state.node.name.clone()).unwrap_or_default();
            self.names = self.slots.iter().map(name).collect();
        }
    }

    /// All nodes in the order in which they are tried.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// Names of nodes by their slots.
    pub fn names(&self) -> Arc<[Str]> {
        self.names.clone()
    }

    pub fn node_count(&self) -> usize {
        self.by_name.len()
    }

    /// One more than the largest slot: the size of an array by [`NodeId`].
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeState> {
        self.slots.get(id.at())?.as_ref()
    }

    pub fn find(&self, name: &str) -> Option<&NodeState> {
        self.node(*self.by_name.get(name)?)
    }

    /// Nodes by their slots.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.slots.iter().flatten()
    }

    pub fn generation_of(&self, id: NodeId) -> u64 {
        self.generations.get(id.at()).copied().unwrap_or(0)
    }

    /// Moves with every change of any node or pod that has one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Moves with every change of a node itself.
    pub fn nodes_generation(&self) -> u64 {
        self.nodes_generation
    }

    /// Labels of a namespace; none where it is not known.
    pub fn namespace_labels(&self, namespace: &str) -> &Labels {
        static NONE: std::sync::OnceLock<Labels> = std::sync::OnceLock::new();
        self.namespaces.get(namespace).unwrap_or_else(|| NONE.get_or_init(Labels::default))
    }

    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        if self.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(Str::new(name), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        self.matching.namespaces_changed();
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// An object besides pods, nodes and namespaces came, changed, or went.
    pub fn object_changed(&mut self, kind: Kind, old: Option<&Tree>, new: Option<&Tree>) {
        match (old, new) {
            (_, Some(new)) => {
                self.alike.put(kind, new);
                self.storage.put(kind, new);
            }
            (Some(old), None) => {
                self.alike.remove(kind, old);
                self.storage.remove(kind, old);
            }
            (None, None) => {}
        }
    }

    /// Counts the pods that a question is about from now on.
    pub fn ask(&mut self, question: Question) {
        self.matching.put(question, &self.namespaces);
    }

    /// Follows the domains of a key from now on.
    pub fn follow(&mut self, key: &str) {
        self.topology.follow(key, self.slots.iter().flatten());
    }

    fn touch(&mut self, id: NodeId) {
        self.generation += 1;
        if let Some(slot) = self.generations.get_mut(id.at()) {
            *slot = self.generation;
        }
    }
}

#[cfg(test)]
mod tests;
