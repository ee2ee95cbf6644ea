//! Counts by node: sorted by slot and without zeros, so that iteration visits only relevant nodes.

use super::NodeId;

/// A number for each node, sorted by node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts(Vec<(NodeId, u32)>);

impl Counts {
    /// The number of a node; 0 if it is absent.
    pub fn get(&self, node: NodeId) -> u32 {
        self.find(node).map_or(0, |at| self.0[at].1)
    }

    /// The nodes with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.0.iter().copied()
    }

    /// Whether no node has a number.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, node: NodeId, more: u32) {
        match self.find(node) {
            Ok(at) => self.0[at].1 += more,
            Err(at) => self.0.insert(at, (node, more)),
        }
    }

    pub(super) fn remove(&mut self, node: NodeId, less: u32) {
        if let Ok(at) = self.find(node) {
            self.0[at].1 = self.0[at].1.saturating_sub(less);
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }

    fn find(&self, node: NodeId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&node, |(id, _)| *id)
    }
}
