//! Hard constraints, evaluated from pod counts by domain.

use std::sync::Arc;

use crate::framework::{Cycle, Rejection, Verdict};
use crate::snapshot::{Domain, Domains, KeyId, NodeId, NodeState, Snapshot};
use podmodel::{Pod, SpreadConstraint};

use super::constraints::query;
use super::eligible::{Eligible, EligibleNodes};

const TOO_MANY: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

#[derive(Clone)]
pub(super) struct HardConstraints {
    constraints: Arc<Vec<SpreadConstraint>>,
    eligible: Vec<Eligible>,
    tallies: Vec<Tally>,
}

/// Pods by domain, and the minimum.
#[derive(Clone, Default)]
struct Tally {
    key: Option<KeyId>,
    /// By domain; None if none of its nodes counts.
    pods: Vec<Option<i64>>,
    domains: i64,
    least: i64,
    /// The number of domains with the minimum.
    at_least: usize,
    /// Whether the pod itself matches.
    own: i64,
}

impl HardConstraints {
    pub(super) fn new(cycle: Cycle, constraints: Vec<SpreadConstraint>, nodes: &EligibleNodes) -> HardConstraints {
        let eligible: Vec<Eligible> = constraints.iter().map(|one| nodes.of(cycle, one)).collect();
        let tally = |(one, eligible): (&SpreadConstraint, &Eligible)| {
            let others: Vec<&Domains> = domains_of(cycle.snapshot, &constraints, one);
            Tally::count(cycle, one, eligible, &others)
        };
        let tallies = constraints.iter().zip(&eligible).map(tally).collect();
        HardConstraints { constraints: Arc::new(constraints), eligible, tallies }
    }

    pub(super) fn check(&self, snapshot: &Snapshot, node: NodeId) -> Verdict {
        for (constraint, tally) in self.constraints.iter().zip(&self.tallies) {
            let Some(domain) = tally.key.and_then(|key| snapshot.topology.domain_at(key, node)) else {
                return Err(Rejection::unresolvable(NO_LABEL));
            };
            let least = if tally.domains < constraint.min_domains { 0 } else { tally.least };
            let here = tally.pods.get(domain.at()).copied().flatten().unwrap_or(0);
            if here + tally.own - least > constraint.max_skew {
                return Err(Rejection::unschedulable(TOO_MANY));
            }
        }
        Ok(())
    }

    /// A pod is added to a node or removed.
    pub(super) fn change(&mut self, cycle: Cycle, pod: &Pod, node: &NodeState, by: i64) {
        let topology = &cycle.snapshot.topology;
        let has_all = self.constraints.iter().all(|one| topology.domain(&one.topology_key, node.id).is_some());
        if pod.namespace != cycle.pod.namespace || pod.is_terminating || !has_all {
            return;
        }
        for (at, constraint) in self.constraints.iter().enumerate() {
            let domain = topology.domain(&constraint.topology_key, node.id);
            if let Some(domain) = domain
                && self.eligible[at].has(node.id)
                && constraint.selector.matches(&pod.labels)
            {
                self.tallies[at].change(domain, by);
            }
        }
    }
}

/// Domains of the other constraints' keys: a node counts if it has them all.
fn domains_of<'a>(snapshot: &'a Snapshot, all: &[SpreadConstraint], but: &SpreadConstraint) -> Vec<&'a Domains> {
    let others = all.iter().filter(|one| one.topology_key != but.topology_key);
    others.filter_map(|one| snapshot.topology.domains(&one.topology_key)).collect()
}

impl Tally {
    fn count(cycle: Cycle, constraint: &SpreadConstraint, eligible: &Eligible, others: &[&Domains]) -> Tally {
        let Some(domains) = cycle.snapshot.topology.domains(&constraint.topology_key) else { return Tally::default() };
        let counts = |node: NodeId| eligible.has(node) && others.iter().all(|other| other.of(node).is_some());
        let mut pods = vec![None; domains.slot_count()];
        if eligible.is_all() && others.is_empty() {
            domains.present().for_each(|domain| pods[domain.at()] = Some(0));
        } else {
            let nodes = domains.nodes().filter(|(node, _)| counts(*node));
            nodes.for_each(|(_, domain)| pods[domain.at()] = Some(0));
        }
        let counted = cycle.snapshot.matching.counts_of(&query(cycle.pod, constraint));
        for (node, count) in counted.into_iter().flat_map(|counts| counts.iter()).filter(|(node, _)| counts(*node)) {
            if let Some(Some(sum)) = domains.of(node).map(|domain| &mut pods[domain.at()]) {
                *sum += i64::from(count);
            }
        }
        let own = i64::from(constraint.selector.matches(&cycle.pod.labels));
        let key = cycle.snapshot.topology.key(&constraint.topology_key);
        let mut tally = Tally { key, domains: pods.iter().flatten().count() as i64, pods, own, ..Tally::default() };
        tally.update_minimum();
        tally
    }

    fn update_minimum(&mut self) {
        self.least = self.pods.iter().flatten().min().copied().unwrap_or(0);
        self.at_least = self.pods.iter().flatten().filter(|pods| **pods == self.least).count();
    }

    fn change(&mut self, domain: Domain, by: i64) {
        let Some(Some(pods)) = self.pods.get_mut(domain.at()) else { return };
        let was_least = *pods == self.least;
        *pods += by;
        let now = *pods;
        match (now < self.least, now == self.least, was_least) {
            (true, ..) => (self.least, self.at_least) = (now, 1),
            (_, true, _) => self.at_least += 1,
            (_, _, true) if self.at_least > 1 => self.at_least -= 1,
            (_, _, true) => self.update_minimum(),
            _ => {}
        }
    }
}
