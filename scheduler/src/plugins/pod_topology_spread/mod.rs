//! Topology spread: hard constraints reject domains with too many pods, soft ones prefer domains with few.

mod constraints;
mod eligible;
mod hard;
mod soft;

use std::sync::Arc;

use api::Tree;

use crate::framework::{Cycle, Event, Plugin, Point, PreFilter, PreScore, Slot, Verdict};
use crate::snapshot::{NodeId, NodeState, Snapshot};
use podmodel::{Labels, Pod, SpreadConstraint};

use constraints::Defaults;
use eligible::EligibleNodes;
use hard::HardConstraints;
use soft::SoftConstraints;

pub(super) struct PodTopologySpread {
    defaults: Defaults,
    eligible: EligibleNodes,
}

impl PodTopologySpread {
    /// With default constraints of the profile for pods without own ones; None for the system defaults.
    pub(super) fn new(constraints: Option<&[Tree]>) -> PodTopologySpread {
        let read = |constraint: &Tree| SpreadConstraint::read(constraint, &Labels::default());
        let of = |constraints: &[Tree]| Defaults::of(constraints.iter().map(read).collect());
        PodTopologySpread { defaults: constraints.map(of).unwrap_or_default(), eligible: EligibleNodes::default() }
    }

    fn constraints(&self, snapshot: &Snapshot, pod: &Pod, is_hard: bool) -> Vec<SpreadConstraint> {
        self.defaults.constraints(snapshot, pod, is_hard)
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn prepare(&self, snapshot: &mut Snapshot, pod: &Arc<Pod>) {
        for is_hard in [true, false] {
            for constraint in self.constraints(snapshot, pod, is_hard) {
                snapshot.track_key(&constraint.topology_key);
                snapshot.track_counts(constraints::query(pod, &constraint));
            }
        }
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        let constraints = self.constraints(cycle.snapshot, cycle.pod, true);
        match constraints.is_empty() {
            true => PreFilter::Skip,
            false => PreFilter::Check(Slot::new(HardConstraints::new(cycle, constraints, &self.eligible))),
        }
    }

    fn filter(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        slot.get::<HardConstraints>().map_or(Ok(()), |hard| hard.check(cycle.snapshot, node.id))
    }

    fn add_pod(&self, cycle: Cycle, slot: &mut Slot, added: &Arc<Pod>, node: &NodeState) {
        if let Some(hard) = slot.get_mut::<HardConstraints>() {
            hard.change(cycle, added, node, 1);
        }
    }

    fn remove_pod(&self, cycle: Cycle, slot: &mut Slot, removed: &Arc<Pod>, node: &NodeState) {
        if let Some(hard) = slot.get_mut::<HardConstraints>() {
            hard.change(cycle, removed, node, -1);
        }
    }

    fn pre_score(&self, cycle: Cycle, _slot: &Slot, nodes: &[NodeId]) -> PreScore {
        let constraints = self.constraints(cycle.snapshot, cycle.pod, false);
        if constraints.is_empty() {
            return PreScore::Skip;
        }
        // System default constraints also spread over hosts if there are no zones.
        let needs_all = !cycle.pod.spec.spread.is_empty() || !self.defaults.is_system();
        PreScore::Rate(Slot::new(SoftConstraints::new(cycle, constraints, nodes, needs_all, &self.eligible)))
    }

    fn score(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> i64 {
        slot.get::<SoftConstraints>().map_or(0, |soft| soft.score(cycle.snapshot, node.id))
    }

    fn normalize(&self, cycle: Cycle, slot: &Slot, nodes: &[NodeId], scores: &mut [i64]) {
        if let Some(soft) = slot.get::<SoftConstraints>() {
            soft.normalize(cycle.snapshot, nodes, scores);
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        let counts = |other: &Pod| other.namespace == pod.namespace;
        let domains = |labels: &Labels| {
            let mut keys = pod.spec.spread.iter().map(|constraint| labels.get(&constraint.topology_key));
            pod.spec.spread.is_empty() || keys.any(|value| value.is_some())
        };
        match event {
            Event::PodPlaced(other) | Event::PodDeleted(other) => counts(other),
            Event::PodChanged { old, new } => {
                counts(new) && (old.labels != new.labels || old.is_terminating != new.is_terminating)
            }
            Event::SelfChanged { old, new } => old.labels != new.labels || old.spec.spread != new.spec.spread,
            Event::NodeAdded(node) | Event::NodeDeleted(node) => domains(&node.labels),
            Event::NodeChanged { old, new } => {
                (old.labels != new.labels || old.taints != new.taints) && (domains(&old.labels) || domains(&new.labels))
            }
            _ => false,
        }
    }
}
