//! Runs all filters on one node, with the pods that are nominated to it.

use std::sync::Arc;

use super::{Cycle, Filters, Rejection};
use crate::snapshot::NodeState;
use podmodel::Pod;

/// Pods of equal or higher priority that are nominated to the node.
fn rivals(cycle: Cycle, node: &NodeState) -> Vec<Arc<Pod>> {
    let pod = cycle.pod;
    let comes_first = |other: &&Arc<Pod>| other.priority >= pod.priority && other.uid != pod.uid;
    cycle.snapshot.nominated(node.name()).iter().filter(comes_first).cloned().collect()
}

/// Whether a pod fits a node, which may be simulated: with the nominated pods and, since they may not arrive, without
/// them.
pub fn fits(cycle: Cycle, filters: &Filters, node: &NodeState) -> Result<(), (usize, Rejection)> {
    let rivals = rivals(cycle, node);
    if !rivals.is_empty() {
        let (mut crowded, mut updated) = (node.clone(), filters.clone());
        rivals.iter().for_each(|rival| updated.add(cycle, rival, &mut crowded));
        updated.check(cycle, &crowded)?;
    }
    filters.check(cycle, node)
}
