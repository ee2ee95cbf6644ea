//! Scores of soft constraints.

use crate::framework::{Cycle, MAX_SCORE};
use crate::snapshot::{Domain, Domains, KeyId, NodeId, Snapshot};
use podmodel::SpreadConstraint;

use super::constraints::{HOSTNAME, query};
use super::eligible::EligibleNodes;

#[derive(Clone)]
pub(crate) struct SoftConstraints {
    constraints: Vec<WeightedConstraint>,
    /// Whether nodes without one of the keys are not scored.
    needs_all: bool,
}

#[derive(Clone)]
struct WeightedConstraint {
    key: Option<KeyId>,
    max_skew: i64,
    /// Topologies with few domains weigh more per pod, so that a large one does not dominate.
    weight: f64,
    /// By domain, or by node for the hostname key.
    pods: Vec<i64>,
    by_node: bool,
}

impl WeightedConstraint {
    fn domain(&self, snapshot: &Snapshot, node: NodeId) -> Option<Domain> {
        snapshot.topology.domain_at(self.key?, node)
    }
}

impl SoftConstraints {
    pub(super) fn new(
        cycle: Cycle,
        constraints: Vec<SpreadConstraint>,
        nodes: &[NodeId],
        needs_all: bool,
        eligible: &EligibleNodes,
    ) -> SoftConstraints {
        let snapshot = cycle.snapshot;
        let domains = |one: &SpreadConstraint| snapshot.topology.domains(&one.topology_key);
        let all: Vec<&Domains> = constraints.iter().filter_map(domains).collect();
        let has_all = |node: NodeId| !needs_all || all.iter().all(|domains| domains.of(node).is_some());
        let rated: Vec<NodeId> = nodes.iter().copied().filter(|node| has_all(*node)).collect();
        let weigh = |one: &SpreadConstraint| {
            let by_node = one.topology_key == HOSTNAME;
            let weight = ((size(snapshot, one, &rated) + 2) as f64).ln();
            let pods = match by_node {
                true => by_nodes(cycle, one),
                false => by_domains(cycle, one, eligible, has_all),
            };
            WeightedConstraint {
                key: snapshot.topology.key(&one.topology_key),
                max_skew: one.max_skew,
                weight,
                pods,
                by_node,
            }
        };
        SoftConstraints { constraints: constraints.iter().map(weigh).collect(), needs_all }
    }

    fn is_rated(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        let has = |one: &WeightedConstraint| one.domain(snapshot, node).is_some();
        !self.needs_all || self.constraints.iter().all(has)
    }

    pub(super) fn score(&self, snapshot: &Snapshot, node: NodeId) -> i64 {
        let mut score = 0.0;
        for one in &self.constraints {
            let Some(domain) = one.domain(snapshot, node) else { continue };
            let at = if one.by_node { node.at() } else { domain.at() };
            let pods = one.pods.get(at).copied().unwrap_or(0);
            score += pods as f64 * one.weight + (one.max_skew - 1) as f64;
        }
        score.round() as i64
    }

    /// Fewer pods score higher; nodes that are not scored get zero.
    pub(crate) fn normalize(&self, snapshot: &Snapshot, nodes: &[NodeId], scores: &mut [i64]) {
        let rated: Vec<bool> = nodes.iter().map(|node| self.is_rated(snapshot, *node)).collect();
        let of_rated = || scores.iter().zip(&rated).filter(|(_, rated)| **rated).map(|(score, _)| *score);
        let (least, most) = (of_rated().min().unwrap_or(0), of_rated().max().unwrap_or(0));
        for (score, rated) in scores.iter_mut().zip(rated) {
            *score = match (rated, most) {
                (false, _) => 0,
                (true, 0) => MAX_SCORE,
                (true, _) => MAX_SCORE * (most + least - *score) / most,
            };
        }
    }
}

/// The number of domains of the nodes; nodes without the key count as one.
fn size(snapshot: &Snapshot, constraint: &SpreadConstraint, nodes: &[NodeId]) -> usize {
    if constraint.topology_key == HOSTNAME {
        return nodes.len();
    }
    let Some(domains) = snapshot.topology.domains(&constraint.topology_key) else {
        return usize::from(!nodes.is_empty());
    };
    let mut seen = vec![false; domains.slot_count() + 1];
    for node in nodes {
        seen[domains.of(*node).map_or(domains.slot_count(), |domain| domain.at())] = true;
    }
    seen.into_iter().filter(|seen| *seen).count()
}

fn by_nodes(cycle: Cycle, constraint: &SpreadConstraint) -> Vec<i64> {
    let mut pods = vec![0; cycle.snapshot.slot_count()];
    let counted = cycle.snapshot.matching.counts_of(&query(cycle.pod, constraint));
    for (node, count) in counted.into_iter().flat_map(|counts| counts.iter()) {
        pods[node.at()] = i64::from(count);
    }
    pods
}

fn by_domains(
    cycle: Cycle,
    constraint: &SpreadConstraint,
    eligible: &EligibleNodes,
    has_all: impl Fn(NodeId) -> bool,
) -> Vec<i64> {
    let Some(domains) = cycle.snapshot.topology.domains(&constraint.topology_key) else { return Vec::new() };
    let eligible = eligible.of(cycle, constraint);
    let mut pods = vec![0; domains.slot_count()];
    let counted = cycle.snapshot.matching.counts_of(&query(cycle.pod, constraint));
    for (node, count) in counted.into_iter().flat_map(|counts| counts.iter()) {
        if let Some(domain) = domains.of(node).filter(|_| eligible.has(node) && has_all(node)) {
            pods[domain.at()] += i64::from(count);
        }
    }
    pods
}
