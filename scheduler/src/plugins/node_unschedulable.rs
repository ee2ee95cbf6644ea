//! Rejects cordoned nodes unless the pod tolerates that.

use crate::framework::{Cycle, Event, Plugin, Point, Rejection, Slot, Verdict};
use crate::snapshot::NodeState;
use podmodel::{Effect, Pod, Taint};

pub(super) struct NodeUnschedulable;

const TAINT: &str = "node.kubernetes.io/unschedulable";

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn is_local(&self) -> bool {
        true
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        if !node.node.unschedulable || is_tolerated(cycle.pod) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) were unschedulable"))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(node) => !node.unschedulable || is_tolerated(pod),
            Event::NodeChanged { old, new } => old.unschedulable && !new.unschedulable,
            Event::SelfChanged { .. } => is_tolerated(pod),
            _ => false,
        }
    }
}

fn is_tolerated(pod: &Pod) -> bool {
    let taint = Taint { key: TAINT.into(), value: Default::default(), effect: Effect::NoSchedule };
    pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(&taint))
}
