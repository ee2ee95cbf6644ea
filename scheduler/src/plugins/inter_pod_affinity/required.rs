//! Terms that must hold, from pods counted by domain.

use std::sync::Arc;

use crate::framework::{Cycle, Refusal, Verdict};
use crate::model::{AffinityTerm, Pod};
use crate::snapshot::{KeyId, NodeId, Snapshot, Wish};

use super::tally::{Tally, of_key};
use super::{question, question_of_all};

const NO_COMPANY: &str = "node(s) didn't match pod affinity rules";
const TOO_NEAR: &str = "node(s) didn't match pod anti-affinity rules";
const UNWANTED: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

#[derive(Clone)]
pub struct Required {
    /// By term of affinity: pods that all of these terms mean.
    company: Vec<Tally>,
    /// By term of anti-affinity: pods that it means.
    avoided: Vec<Tally>,
    /// By key: pods with a term of anti-affinity that means this one.
    unwanted: Vec<Tally>,
    /// What all of these come to, as long as no pod comes or goes in the mind.
    refused: Arc<Vec<Refused>>,
}

/// Which domains of a key are refused.
struct Refused {
    place: Option<KeyId>,
    domains: Vec<bool>,
    /// Whether nodes without the key are.
    others: bool,
}

impl Required {
    /// None where there is nothing to heed.
    pub fn new(cycle: Cycle) -> Option<Required> {
        let (snapshot, spec) = (cycle.snapshot, &cycle.pod.spec);
        let unwanted = unwanted(cycle);
        if spec.affinity.required.is_empty() && spec.anti_affinity.required.is_empty() && unwanted.is_empty() {
            return None;
        }
        let counted = |term: &AffinityTerm, question| {
            let mut tally = Tally::new(snapshot, &term.topology_key);
            if let Some(counts) = snapshot.matching.answer(&question) {
                tally.add_all(snapshot, counts, 1);
            }
            tally
        };
        let company = spec.affinity.required.iter().map(|term| counted(term, question_of_all(cycle.pod)));
        let avoided = spec.anti_affinity.required.iter().map(|term| counted(term, question(term)));
        let (company, avoided): (Vec<Tally>, Vec<Tally>) = (company.collect(), avoided.collect());
        let is_first = is_first(cycle, &company);
        let alone = company.iter().map(|tally| tally.refused(true, |sum| sum <= 0 && !is_first));
        let near = avoided.iter().chain(&unwanted).map(|tally| tally.refused(false, |sum| sum > 0));
        let refused = Arc::new(alone.chain(near).collect());
        Some(Required { company, avoided, unwanted, refused })
    }

    /// The same as [`Required::check`] of a node as it is, without the reason.
    pub fn refuses(&self, snapshot: &Snapshot, node: NodeId) -> bool {
        let is_refused = |one: &Refused| match one.place.and_then(|place| snapshot.topology.domain_at(place, node)) {
            Some(domain) => one.domains.get(domain.at()).copied().unwrap_or(one.others),
            None => one.others,
        };
        self.refused.iter().any(is_refused)
    }

    pub fn check(&self, cycle: Cycle, node: NodeId) -> Verdict {
        let is_any_here = |tallies: &[Tally]| tallies.iter().any(|tally| tally.here(cycle.snapshot, node) > 0);
        if !self.has_company(cycle, node) {
            return Err(Refusal::unresolvable(NO_COMPANY));
        }
        if is_any_here(&self.avoided) {
            return Err(Refusal::unschedulable(TOO_NEAR));
        }
        match is_any_here(&self.unwanted) {
            true => Err(Refusal::unschedulable(UNWANTED)),
            false => Ok(()),
        }
    }

    /// The first of its kind may stand alone.
    fn has_company(&self, cycle: Cycle, node: NodeId) -> bool {
        if self.company.iter().any(|tally| tally.domain(cycle.snapshot, node).is_none()) {
            return false;
        }
        self.company.iter().all(|tally| tally.here(cycle.snapshot, node) > 0) || is_first(cycle, &self.company)
    }

    /// A pod comes to a node, or goes.
    pub fn change(&mut self, cycle: Cycle, other: &Pod, node: NodeId, by: i64) {
        let (snapshot, pod) = (cycle.snapshot, cycle.pod);
        if means_all(snapshot, pod, other) {
            self.company.iter_mut().for_each(|tally| tally.add(snapshot, node, by));
        }
        for (term, tally) in pod.spec.anti_affinity.required.iter().zip(&mut self.avoided) {
            if means(snapshot, term, other) {
                tally.add(snapshot, node, by);
            }
        }
        for term in other.spec.anti_affinity.required.iter().filter(|term| means(snapshot, term, pod)) {
            of_key(&mut self.unwanted, snapshot, &term.topology_key).add(snapshot, node, by);
        }
    }
}

/// Whether there is nobody yet whom the pod could be near to, and it is one of those itself.
fn is_first(cycle: Cycle, company: &[Tally]) -> bool {
    company.iter().all(|tally| tally.total == 0) && means_all(cycle.snapshot, cycle.pod, cycle.pod)
}

impl Tally {
    fn refused(&self, others: bool, is_refused: impl Fn(i64) -> bool) -> Refused {
        Refused { place: self.place, domains: self.sums.iter().map(|sum| is_refused(*sum)).collect(), others }
    }
}

fn unwanted(cycle: Cycle) -> Vec<Tally> {
    let snapshot = cycle.snapshot;
    let labels = snapshot.namespace_labels(&cycle.pod.namespace);
    let mut tallies = Vec::new();
    for (_, term, counts) in snapshot.affinity.meaning(cycle.pod, labels, |wish| wish == Wish::Apart) {
        of_key(&mut tallies, snapshot, &term.topology_key).add_all(snapshot, counts, 1);
    }
    tallies
}

fn means(snapshot: &Snapshot, term: &AffinityTerm, pod: &Pod) -> bool {
    term.matches(&pod.namespace, &pod.labels, snapshot.namespace_labels(&pod.namespace))
}

/// Whether all required terms of affinity of a pod mean another; false where there are none.
fn means_all(snapshot: &Snapshot, pod: &Pod, other: &Pod) -> bool {
    let terms = &pod.spec.affinity.required;
    !terms.is_empty() && terms.iter().all(|term| means(snapshot, term, other))
}
