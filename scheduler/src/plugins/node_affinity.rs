//! Node selector and node affinity: required terms filter, preferred terms score.

use std::collections::BTreeSet;

use api::{Str, Tree};

use crate::framework::{
    Cycle, Event, Plugin, Point, PreFilter, PreScore, Rejection, Slot, Verdict, normalize_by_largest,
};
use crate::snapshot::{NodeId, NodeState};
use podmodel::{Node, NodeSelector, NodeTerm, Operator, Pod, Spec};

const NO_MATCH: &str = "node(s) didn't match Pod's node affinity/selector";
const ADDED_NO_MATCH: &str = "node(s) didn't match scheduler-enforced node affinity";

pub(super) struct NodeAffinity {
    /// Affinity that applies to every pod of the profile.
    added: Option<NodeSelector>,
    added_preferred: Vec<(i64, NodeTerm)>,
}

impl NodeAffinity {
    /// With an added NodeAffinity for all pods of the profile; null for none.
    pub(crate) fn with_added(added: &Tree) -> NodeAffinity {
        let required = added.at("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = added.list("preferredDuringSchedulingIgnoredDuringExecution").iter();
        let weighted = |one: &Tree| (one.int("weight").unwrap_or(0), NodeTerm::read(one.at("preference")));
        NodeAffinity {
            added: (!required.is_null()).then(|| NodeSelector::read(required)),
            added_preferred: preferred.map(weighted).collect(),
        }
    }

    fn is_added_met(&self, node: &Node) -> bool {
        self.added.as_ref().is_none_or(|selector| selector.matches(&node.name, &node.labels))
    }

    fn accepts(&self, spec: &Spec, node: &Node) -> bool {
        self.is_added_met(node) && spec.selects(&node.name, &node.labels)
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn is_local(&self) -> bool {
        true
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        let spec = &cycle.pod.spec;
        if self.added.is_none() && spec.node_affinity.is_none() && spec.node_selector.is_empty() {
            return PreFilter::Skip;
        }
        match spec.node_affinity.as_ref().and_then(named) {
            Some(names) if names.is_empty() => {
                PreFilter::Refuse(Rejection::unresolvable("pod affinity terms conflict"))
            }
            Some(names) => PreFilter::Only(names, Slot::default()),
            None => PreFilter::Check(Slot::default()),
        }
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        if !self.is_added_met(&node.node) {
            return Err(Rejection::unresolvable(ADDED_NO_MATCH));
        }
        match cycle.pod.spec.selects(node.name(), &node.node.labels) {
            true => Ok(()),
            false => Err(Rejection::unresolvable(NO_MATCH)),
        }
    }

    fn pre_score(&self, cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        match cycle.pod.spec.preferred_node_affinity.is_empty() && self.added_preferred.is_empty() {
            true => PreScore::Skip,
            false => PreScore::Rate(Slot::default()),
        }
    }

    fn score(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> i64 {
        let terms = cycle.pod.spec.preferred_node_affinity.iter().chain(&self.added_preferred);
        terms.filter(|(_, term)| term.matches(node.name(), &node.node.labels)).map(|(weight, _)| weight).sum()
    }

    fn normalize(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize_by_largest(scores, false);
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(node) => self.accepts(&pod.spec, node),
            Event::NodeChanged { old, new } => !self.accepts(&pod.spec, old) && self.accepts(&pod.spec, new),
            Event::SelfChanged { old, new } => {
                old.spec.node_selector != new.spec.node_selector || old.spec.node_affinity != new.spec.node_affinity
            }
            _ => false,
        }
    }
}

/// The nodes named by all terms, as in pods of DaemonSets.
fn named(selector: &NodeSelector) -> Option<BTreeSet<Str>> {
    let mut all = BTreeSet::new();
    for term in &selector.terms {
        let mut lists = term.fields.iter().filter(|one| one.key == "metadata.name" && one.operator == Operator::In);
        let first: BTreeSet<Str> = lists.next()?.values.iter().cloned().collect();
        let both = |set: BTreeSet<Str>, one: &podmodel::Requirement| {
            set.into_iter().filter(|name| one.values.contains(name)).collect()
        };
        all.extend(lists.fold(first, both));
    }
    (!selector.terms.is_empty()).then_some(all)
}
