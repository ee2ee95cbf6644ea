//! One decision: a pure function of the snapshot, the profile, the pod and a seeded chance.

use std::collections::BTreeMap;

use crate::framework::Refusal;
use crate::snapshot::NodeId;

/// Why a pod found no node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failure {
    pub node_count: usize,
    /// All nodes were refused at once, by the plugin at this position.
    pub at_once: Option<(usize, Refusal)>,
    /// The plugin, by its position in the profile, and why.
    pub nodes: BTreeMap<NodeId, (usize, Refusal)>,
    /// What is said of preemption.
    pub post_filter: String,
}
