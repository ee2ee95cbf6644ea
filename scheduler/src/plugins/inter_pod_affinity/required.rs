//! Required terms, evaluated from pod counts by domain.

use std::sync::Arc;

use crate::framework::{Cycle, Rejection, Verdict};
use crate::snapshot::{KeyId, NodeId, Snapshot, TermEffect};
use podmodel::{AffinityTerm, Pod};

use super::tally::{Tally, tally_for_key};
use super::{query, query_of_all};

const NO_COMPANY: &str = "node(s) didn't match pod affinity rules";
const TOO_NEAR: &str = "node(s) didn't match pod anti-affinity rules";
const UNWANTED: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

#[derive(Clone)]
pub(super) struct Required {
    /// By affinity term: pods that match all of these terms.
    company: Vec<Tally>,
    /// By anti-affinity term: pods that match it.
    avoided: Vec<Tally>,
    /// By key: pods with an anti-affinity term that matches this pod.
    unwanted: Vec<Tally>,
    /// The result of all of these while no pod is added or removed in simulation.
    refused: Arc<Vec<RejectedDomains>>,
}

/// The rejected domains of a key.
struct RejectedDomains {
    place: Option<KeyId>,
    domains: Vec<bool>,
    /// Whether nodes without the key are rejected.
    others: bool,
}

impl Required {
    /// None if there is nothing to check.
    pub(super) fn new(cycle: Cycle) -> Option<Required> {
        let (snapshot, spec) = (cycle.snapshot, &cycle.pod.spec);
        let unwanted = anti_affinity_tallies(cycle);
        if spec.affinity.required.is_empty() && spec.anti_affinity.required.is_empty() && unwanted.is_empty() {
            return None;
        }
        let counted = |term: &AffinityTerm, query| {
            let mut tally = Tally::new(snapshot, &term.topology_key);
            if let Some(counts) = snapshot.matching.counts_of(&query) {
                tally.add_all(snapshot, counts, 1);
            }
            tally
        };
        let company = spec.affinity.required.iter().map(|term| counted(term, query_of_all(cycle.pod)));
        let avoided = spec.anti_affinity.required.iter().map(|term| counted(term, query(term)));
        let (company, avoided): (Vec<Tally>, Vec<Tally>) = (company.collect(), avoided.collect());
        let is_first = is_first(cycle, &company);
        let alone = company.iter().map(|tally| tally.refused(true, |sum| sum <= 0 && !is_first));
        let near = avoided.iter().chain(&unwanted).map(|tally| tally.refused(false, |sum| sum > 0));
        let refused = Arc::new(alone.chain(near).collect());
        Some(Required { company, avoided, unwanted, refused })
    }

    /// Like [`Required::check`] on the current node, without the reason.
    pub(crate) fn rejects(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        let is_refused =
            |one: &RejectedDomains| match one.place.and_then(|place| snapshot.topology.domain_at(place, node)) {
                Some(domain) => one.domains.get(domain.at()).copied().unwrap_or(one.others),
                None => one.others,
            };
        self.refused.iter().any(is_refused)
    }

    pub(super) fn check(&self, cycle: Cycle, node: NodeId) -> Verdict {
        let is_any_here = |tallies: &[Tally]| tallies.iter().any(|tally| tally.count_on(cycle.snapshot, node) > 0);
        if !self.satisfies_affinity(cycle, node) {
            return Err(Rejection::unresolvable(NO_COMPANY));
        }
        if is_any_here(&self.avoided) {
            return Err(Rejection::unschedulable(TOO_NEAR));
        }
        match is_any_here(&self.unwanted) {
            true => Err(Rejection::unschedulable(UNWANTED)),
            false => Ok(()),
        }
    }

    /// The first pod of a group may be alone.
    fn satisfies_affinity(&self, cycle: Cycle, node: NodeId) -> bool {
        if self.company.iter().any(|tally| tally.domain(cycle.snapshot, node).is_none()) {
            return false;
        }
        self.company.iter().all(|tally| tally.count_on(cycle.snapshot, node) > 0) || is_first(cycle, &self.company)
    }

    /// A pod is added to a node or removed.
    pub(super) fn change(&mut self, cycle: Cycle, other: &Pod, node: NodeId, by: i64) {
        let (snapshot, pod) = (cycle.snapshot, cycle.pod);
        if matches_all_terms(snapshot, pod, other) {
            self.company.iter_mut().for_each(|tally| tally.add(snapshot, node, by));
        }
        for (term, tally) in pod.spec.anti_affinity.required.iter().zip(&mut self.avoided) {
            if matches_term(snapshot, term, other) {
                tally.add(snapshot, node, by);
            }
        }
        for term in other.spec.anti_affinity.required.iter().filter(|term| matches_term(snapshot, term, pod)) {
            tally_for_key(&mut self.unwanted, snapshot, &term.topology_key).add(snapshot, node, by);
        }
    }
}

/// Whether no pod matches the affinity terms yet, and the pod matches its own.
fn is_first(cycle: Cycle, company: &[Tally]) -> bool {
    company.iter().all(|tally| tally.total == 0) && matches_all_terms(cycle.snapshot, cycle.pod, cycle.pod)
}

impl Tally {
    fn refused(&self, others: bool, is_refused: impl Fn(i64) -> bool) -> RejectedDomains {
        RejectedDomains { place: self.place, domains: self.sums.iter().map(|sum| is_refused(*sum)).collect(), others }
    }
}

fn anti_affinity_tallies(cycle: Cycle) -> Vec<Tally> {
    let snapshot = cycle.snapshot;
    let labels = snapshot.namespace_labels(&cycle.pod.namespace);
    let mut tallies = Vec::new();
    for (_, term, counts) in snapshot.affinity.matching_terms(cycle.pod, labels, |wish| wish == TermEffect::Apart) {
        tally_for_key(&mut tallies, snapshot, &term.topology_key).add_all(snapshot, counts, 1);
    }
    tallies
}

fn matches_term(snapshot: &Snapshot, term: &AffinityTerm, pod: &Pod) -> bool {
    term.matches(&pod.namespace, &pod.labels, snapshot.namespace_labels(&pod.namespace))
}

/// Whether a pod's required affinity terms all match another; false without terms.
fn matches_all_terms(snapshot: &Snapshot, pod: &Pod, other: &Pod) -> bool {
    let terms = &pod.spec.affinity.required;
    !terms.is_empty() && terms.iter().all(|term| matches_term(snapshot, term, other))
}
