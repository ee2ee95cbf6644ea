//! Pods with `spec.nodeName` fit only that node.

use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection, Slot, Verdict};
use crate::snapshot::NodeState;
use podmodel::Pod;

pub(super) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if cycle.pod.node_name.is_empty() { PreFilter::Skip } else { PreFilter::Check(Slot::default()) }
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        if cycle.pod.node_name == node.name() {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        matches!(event, Event::NodeAdded(node) if node.name == pod.node_name)
    }
}
