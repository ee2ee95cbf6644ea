//! Host ports of pods on a node must not conflict.

use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, Rejection, Slot, Verdict};
use crate::snapshot::NodeState;
use podmodel::Pod;

pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn is_local(&self) -> bool {
        true
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        if cycle.pod.spec.ports.is_empty() { PreFilter::Skip } else { PreFilter::Check(Slot::default()) }
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        let is_taken = |port| node.ports.iter().any(|taken| taken.conflicts_with(port));
        if !cycle.pod.spec.ports.iter().any(is_taken) {
            return Ok(());
        }
        Err(Rejection::unschedulable("node(s) didn't have free ports for the requested pod ports"))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::PodDeleted(gone) => {
                gone.spec.ports.iter().any(|freed| pod.spec.ports.iter().any(|port| port.conflicts_with(freed)))
            }
            _ => false,
        }
    }
}
