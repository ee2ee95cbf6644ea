//! Topology domains of nodes by label key. A key is tracked from the first pod that needs it; then the domain of a
//! node is an array lookup.

use std::collections::{BTreeMap, HashMap};

use api::Str;

use super::{NodeId, NodeState};

/// The number of a value of a key. The number of a value that no node has is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub u32);

impl Domain {
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// The topology domains of nodes, for keys that are in use.
#[derive(Debug, Default)]
pub struct Topology {
    places: BTreeMap<Str, KeyId>,
    /// By [`KeyId`].
    keys: Vec<Domains>,
}

/// The index of a tracked key; stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId(usize);

/// The domains of one key.
#[derive(Debug, Default)]
pub struct Domains {
    key: Str,
    /// By node.
    of: Vec<Option<Domain>>,
    numbers: HashMap<Str, Domain>,
    /// By domain: its value and the number of its nodes.
    values: Vec<(Str, u32)>,
    free: Vec<Domain>,
}

impl Topology {
    /// The index of a key if it is tracked.
    pub fn key(&self, key: &str) -> Option<KeyId> {
        self.places.get(key).copied()
    }

    /// An array lookup.
    pub(crate) fn domain_at(&self, key: KeyId, node: NodeId) -> Option<Domain> {
        self.keys[key.0].of(node)
    }

    /// The domains of a key if it is tracked.
    pub(crate) fn domains(&self, key: &str) -> Option<&Domains> {
        self.key(key).map(|key| &self.keys[key.0])
    }

    /// The domain of a node for a key.
    pub fn domain(&self, key: &str, node: NodeId) -> Option<Domain> {
        self.domain_at(self.key(key)?, node)
    }

    /// Tracks a key from now on.
    pub fn track_key<'a>(&mut self, key: &str, nodes: impl Iterator<Item = &'a NodeState>) {
        if self.places.contains_key(key) {
            return;
        }
        let mut domains = Domains { key: Str::new(key), ..Domains::default() };
        nodes.for_each(|state| domains.add(state));
        self.places.insert(Str::new(key), KeyId(self.keys.len()));
        self.keys.push(domains);
    }

    pub(super) fn add_node(&mut self, state: &NodeState) {
        self.keys.iter_mut().for_each(|domains| domains.add(state));
    }

    pub(super) fn remove_node(&mut self, state: &NodeState) {
        self.keys.iter_mut().for_each(|domains| domains.remove(state.id));
    }
}

impl Domains {
    /// The domain of a node.
    pub fn of(&self, node: NodeId) -> Option<Domain> {
        self.of.get(node.at()).copied().flatten()
    }

    /// Nodes with the key, and their domains.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, Domain)> {
        let numbered = (0u32..).map(NodeId).zip(&self.of);
        numbered.filter_map(|(node, domain)| Some((node, (*domain)?)))
    }

    /// Domains that have nodes.
    pub(crate) fn present(&self) -> impl Iterator<Item = Domain> {
        let numbered = (0u32..).map(Domain).zip(&self.values);
        numbered.filter(|(_, (_, nodes))| *nodes > 0).map(|(domain, _)| domain)
    }

    /// The length of arrays indexed by [`Domain`].
    pub(crate) fn slot_count(&self) -> usize {
        self.values.len()
    }

    /// The number of domains with nodes.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    #[cfg(test)]
    pub(crate) fn nodes_in(&self, domain: Domain) -> u32 {
        self.values.get(domain.at()).map_or(0, |(_, nodes)| *nodes)
    }

    fn add(&mut self, state: &NodeState) {
        let Some(value) = state.node.labels.get(&self.key) else { return };
        let domain = match self.numbers.get(value) {
            Some(domain) => *domain,
            None => self.add_domain(value),
        };
        self.values[domain.at()].1 += 1;
        if self.of.len() <= state.id.at() {
            self.of.resize(state.id.at() + 1, None);
        }
        self.of[state.id.at()] = Some(domain);
    }

    fn add_domain(&mut self, value: &str) -> Domain {
        let next = Domain(u32::try_from(self.values.len()).unwrap_or(u32::MAX));
        let domain = self.free.pop().unwrap_or(next);
        if domain == next {
            self.values.push(Default::default());
        }
        self.values[domain.at()] = (Str::new(value), 0);
        self.numbers.insert(Str::new(value), domain);
        domain
    }

    fn remove(&mut self, node: NodeId) {
        let Some(domain) = self.of.get_mut(node.at()).and_then(Option::take) else { return };
        let (value, nodes) = &mut self.values[domain.at()];
        *nodes -= 1;
        if *nodes == 0 {
            self.numbers.remove(value);
            self.free.push(domain);
        }
    }
}
