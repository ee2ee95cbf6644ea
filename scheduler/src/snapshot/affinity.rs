//! Terms of affinity of the pods that have nodes, counted by domain.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Str;

use super::{NodeId, Topology};
use crate::model::{Labels, Pod};

#[derive(Debug, Default)]
pub struct AffinityIndex {}

impl AffinityIndex {
    /// A pod is on a node now. Called with the domains that the node has.
    pub(super) fn add(&mut self, _: &Arc<Pod>, _: NodeId, _: &Topology, _: &BTreeMap<Str, Labels>) {}

    /// Called before the node loses its domains.
    pub(super) fn remove(&mut self, _: &Arc<Pod>, _: NodeId, _: &Topology, _: &BTreeMap<Str, Labels>) {}

    /// Labels of a namespace are others now.
    pub(super) fn namespace_changed(&mut self, _: &str) {}
}
