//! Rejects nodes with untolerated taints, and scores nodes by PreferNoSchedule taints.

use crate::framework::{Cycle, Event, Plugin, Point, Rejection, Slot, Verdict, normalize_by_largest};
use crate::snapshot::{NodeId, NodeState};
use podmodel::{Effect, Node, Pod, Spec, Taint};

pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::PreScore, Point::Score]
    }

    fn is_local(&self) -> bool {
        true
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        if tolerates(&cycle.pod.spec, &node.node) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) had untolerated taint(s)"))
    }

    /// The number of untolerated PreferNoSchedule taints.
    fn score(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> i64 {
        let soft = node.node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
        soft.filter(|taint| !is_tolerated(&cycle.pod.spec, taint)).count() as i64
    }

    fn normalize(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize_by_largest(scores, true);
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(node) => tolerates(&pod.spec, node),
            Event::NodeChanged { old, new } => !tolerates(&pod.spec, old) && tolerates(&pod.spec, new),
            Event::SelfChanged { old, new } => old.spec.tolerations != new.spec.tolerations,
            _ => false,
        }
    }
}

fn is_tolerated(spec: &Spec, taint: &Taint) -> bool {
    spec.tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

/// Whether the pod tolerates all NoSchedule and NoExecute taints of the node.
pub(super) fn tolerates(spec: &Spec, node: &Node) -> bool {
    node.taints.iter().filter(|taint| taint.is_hard()).all(|taint| is_tolerated(spec, taint))
}
