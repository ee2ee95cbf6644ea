//! Inter-pod affinity and anti-affinity, of the pod and of assigned pods.

mod preferred;
mod required;
mod tally;

use std::sync::Arc;

use crate::framework::{Cycle, Event, MAX_SCORE, Plugin, Point, PreFilter, PreScore, Slot, Verdict};
use crate::snapshot::{CountQuery, NodeId, NodeState, PodSelector, Snapshot, terms_of};
use podmodel::{AffinityTerm, Labels, Pod};

use preferred::Preferred;
use required::Required;

pub(super) struct InterPodAffinity {
    /// The weight of required affinity terms of assigned pods that match the pod.
    hard_weight: i64,
    /// Whether preferred terms of assigned pods are ignored for a pod without own terms.
    ignores_others: bool,
}

impl InterPodAffinity {
    pub(super) fn new(hard_weight: i64, ignores_others: bool) -> InterPodAffinity {
        InterPodAffinity { hard_weight, ignores_others }
    }
}

/// Pods that match a term.
fn query(term: &AffinityTerm) -> CountQuery {
    CountQuery { all: vec![PodSelector::of_term(term)], with_terminating: true }
}

/// Pods that match all required affinity terms.
fn query_of_all(pod: &Pod) -> CountQuery {
    CountQuery { all: pod.spec.affinity.required.iter().map(PodSelector::of_term).collect(), with_terminating: true }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn prepare(&self, snapshot: &mut Snapshot, pod: &Arc<Pod>) {
        let spec = &pod.spec;
        if !spec.affinity.required.is_empty() {
            snapshot.track_counts(query_of_all(pod));
        }
        let weighted = spec.affinity.preferred.iter().chain(&spec.anti_affinity.preferred).map(|(_, term)| term);
        spec.anti_affinity.required.iter().chain(weighted).for_each(|term| snapshot.track_counts(query(term)));
        let keys = terms_of(pod).map(|(_, term)| &term.topology_key);
        keys.for_each(|key| snapshot.track_key(key));
        // Keys of assigned pods: a restarted scheduler sees them before it schedules a similar pod.
        let unknown = snapshot.affinity.untracked_keys(&snapshot.topology);
        unknown.iter().for_each(|key| snapshot.track_key(key));
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        match Required::new(cycle) {
            Some(required) => PreFilter::Check(Slot::new(required)),
            None => PreFilter::Skip,
        }
    }

    fn filter(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        slot.get::<Required>().map_or(Ok(()), |required| required.check(cycle, node.id))
    }

    fn has_fast_rejections(&self) -> bool {
        true
    }

    fn rejects(&self, cycle: Cycle, slot: &Slot, node: NodeId) -> bool {
        slot.get::<Required>().is_some_and(|required| required.rejects(cycle.snapshot, node))
    }

    fn add_pod(&self, cycle: Cycle, slot: &mut Slot, added: &Arc<Pod>, node: &NodeState) {
        if let Some(required) = slot.get_mut::<Required>() {
            required.change(cycle, added, node.id, 1);
        }
    }

    fn remove_pod(&self, cycle: Cycle, slot: &mut Slot, removed: &Arc<Pod>, node: &NodeState) {
        if let Some(required) = slot.get_mut::<Required>() {
            required.change(cycle, removed, node.id, -1);
        }
    }

    fn pre_score(&self, cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        match Preferred::new(cycle, self.hard_weight, self.ignores_others) {
            Some(preferred) => PreScore::Rate(Slot::new(preferred)),
            None => PreScore::Skip,
        }
    }

    fn score(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> i64 {
        slot.get::<Preferred>().map_or(0, |preferred| preferred.score(cycle.snapshot, node.id))
    }

    fn normalize(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId], scores: &mut [i64]) {
        let (least, most) = (scores.iter().min().copied().unwrap_or(0), scores.iter().max().copied().unwrap_or(0));
        for score in scores {
            let part = if most == least { 0.0 } else { (*score - least) as f64 / (most - least) as f64 };
            *score = (MAX_SCORE as f64 * part) as i64;
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        let spec = &pod.spec;
        let keys = || terms_of(pod).map(|(_, term)| term.topology_key.as_str());
        let has_key = |labels: &Labels| keys().any(|key| labels.get(key).is_some());
        let is_company = |other: &Pod| spec.affinity.required.iter().any(|term| may_match(term, other));
        let was_in_the_way = |other: &Pod| {
            spec.anti_affinity.required.iter().any(|term| may_match(term, other))
                || other.spec.anti_affinity.required.iter().any(|term| may_match(term, pod))
        };
        match event {
            Event::PodPlaced(other) => is_company(other),
            Event::PodDeleted(other) => was_in_the_way(other) || is_company(other),
            Event::PodChanged { old, new } => {
                old.labels != new.labels && (is_company(new) || is_company(old) || was_in_the_way(old))
            }
            Event::SelfChanged { old, new } => old.labels != new.labels || old.spec != new.spec,
            Event::NodeAdded(node) => spec.affinity.required.is_empty() || has_key(&node.labels),
            Event::NodeChanged { old, new } => old.labels != new.labels,
            // Pods of a deleted node are in no domain.
            Event::NodeDeleted(_) | Event::NamespaceChanged => true,
            _ => false,
        }
    }
}

/// Whether a term may match a pod; its namespace selector is assumed to match.
fn may_match(term: &AffinityTerm, pod: &Pod) -> bool {
    let named = term.namespaces.binary_search(&pod.namespace).is_ok();
    term.selector.matches(&pod.labels) && (named || !term.namespace_selector.is_nothing())
}
