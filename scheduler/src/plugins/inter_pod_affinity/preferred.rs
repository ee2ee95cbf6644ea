//! Preferred terms of the pod and of assigned pods, summed by domain.

use crate::framework::Cycle;
use crate::snapshot::{NodeId, Snapshot, TermEffect};

use super::query;
use super::tally::{Tally, tally_for_key};

#[derive(Clone)]
pub(crate) struct Preferred(Vec<Tally>);

impl Preferred {
    /// None if no term matches.
    pub(super) fn new(cycle: Cycle, hard_weight: i64, ignores_others: bool) -> Option<Preferred> {
        let (snapshot, spec) = (cycle.snapshot, &cycle.pod.spec);
        let has_own = !spec.affinity.preferred.is_empty() || !spec.anti_affinity.preferred.is_empty();
        if !has_own && (ignores_others || !snapshot.affinity.has(|wish| wish != TermEffect::Apart)) {
            return None;
        }
        let (mut tallies, mut any) = (Vec::new(), false);
        let liked = spec.affinity.preferred.iter().map(|(weight, term)| (*weight, term));
        let disliked = spec.anti_affinity.preferred.iter().map(|(weight, term)| (-*weight, term));
        for (weight, term) in liked.chain(disliked) {
            let tally = tally_for_key(&mut tallies, snapshot, &term.topology_key);
            let counts = snapshot.matching.counts_of(&query(term));
            any |= counts.is_some_and(|counts| tally.add_all(snapshot, counts, weight));
        }
        let labels = snapshot.namespace_labels(&cycle.pod.namespace);
        let weighs = |wish| wish != TermEffect::Apart && (wish != TermEffect::Near || hard_weight > 0);
        for (wish, term, counts) in snapshot.affinity.matching_terms(cycle.pod, labels, weighs) {
            let weight = if let TermEffect::Weight(weight) = wish { weight } else { hard_weight };
            any |= tally_for_key(&mut tallies, snapshot, &term.topology_key).add_all(snapshot, counts, weight);
        }
        any.then_some(Preferred(tallies))
    }

    pub(super) fn score(&self, snapshot: &Snapshot, node: NodeId) -> i64 {
        self.0.iter().map(|tally| tally.count_on(snapshot, node)).sum()
    }
}
