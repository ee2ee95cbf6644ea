//! Pods that need a declared feature run on nodes that declare it.

use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection, Slot, Verdict};
use crate::snapshot::NodeState;
use podmodel::{Node, Pod};

pub(super) struct NodeDeclaredFeatures;

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn is_local(&self) -> bool {
        true
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        match cycle.pod.spec.needed_features.is_empty() {
            true => PreFilter::Skip,
            false => PreFilter::Check(Slot::default()),
        }
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        if has_all(cycle.pod, &node.node) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) didn't match Pod's required features"))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(node) => has_all(pod, node),
            Event::NodeChanged { old, new } => !has_all(pod, old) && has_all(pod, new),
            Event::SelfChanged { old, new } => old.spec.needed_features != new.spec.needed_features,
            _ => false,
        }
    }
}

fn has_all(pod: &Pod, node: &Node) -> bool {
    let has = |feature: &&'static str| node.declared_features.iter().any(|declared| declared == feature);
    pod.spec.needed_features.iter().all(has)
}
