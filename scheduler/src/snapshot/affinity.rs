//! Affinity terms of assigned pods: the number of pods with each term, by node. Pods of one template have the same
//! terms.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::Str;

use super::counts::Counts;
use super::{NodeId, Topology};
use podmodel::{AffinityTerm, Labels, Pod};

/// The effect of a term on a pod that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TermEffect {
    /// Required anti-affinity.
    Apart,
    /// Required affinity.
    Near,
    /// Preferred affinity, or anti-affinity if negative.
    Weight(i64),
}

/// The affinity terms of placed pods.
#[derive(Debug, Default)]
pub struct AffinityIndex {
    terms: HashMap<TermEffect, HashMap<AffinityTerm, Counts>>,
    /// The number of terms by key.
    keys: BTreeMap<Str, usize>,
}

impl AffinityIndex {
    /// Terms of assigned pods that match this pod, with the nodes of those pods.
    pub(crate) fn matching_terms<'a>(
        &'a self,
        pod: &'a Pod,
        namespace_labels: &'a Labels,
        wanted: impl Fn(TermEffect) -> bool,
    ) -> impl Iterator<Item = (TermEffect, &'a AffinityTerm, &'a Counts)> {
        let terms = self.terms.iter().filter(move |(wish, _)| wanted(**wish));
        let terms = terms.flat_map(|(wish, terms)| terms.iter().map(|(term, counts)| (*wish, term, counts)));
        terms.filter(move |(_, term, _)| term.matches(&pod.namespace, &pod.labels, namespace_labels))
    }

    /// Keys of terms whose domains are not tracked yet.
    pub(crate) fn untracked_keys(&self, topology: &Topology) -> Vec<Str> {
        let keys = self.keys.keys().filter(|key| topology.domains(key).is_none());
        keys.cloned().collect()
    }

    /// Whether there is a term with such an effect.
    pub fn has(&self, wanted: impl Fn(TermEffect) -> bool) -> bool {
        self.terms.keys().any(|wish| wanted(*wish))
    }

    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: NodeId) {
        for (wish, term) in terms_of(pod) {
            let terms = self.terms.entry(wish).or_default();
            match terms.get_mut(term) {
                Some(counts) => counts.add(node, 1),
                None => {
                    terms.entry(term.clone()).or_default().add(node, 1);
                    *self.keys.entry(term.topology_key.clone()).or_default() += 1;
                }
            }
        }
    }

    pub(super) fn remove(&mut self, pod: &Arc<Pod>, node: NodeId) {
        for (wish, term) in terms_of(pod) {
            let Some(terms) = self.terms.get_mut(&wish) else { continue };
            let Some(counts) = terms.get_mut(term) else { continue };
            counts.remove(node, 1);
            if counts.is_empty() {
                terms.remove(term);
                forget(&mut self.keys, &term.topology_key);
            }
            if terms.is_empty() {
                self.terms.remove(&wish);
            }
        }
    }
}

fn forget(keys: &mut BTreeMap<Str, usize>, key: &Str) {
    if let Some(terms) = keys.get_mut(key) {
        *terms -= 1;
        if *terms == 0 {
            keys.remove(key);
        }
    }
}

/// All terms of a pod.
pub(crate) fn terms_of(pod: &Pod) -> impl Iterator<Item = (TermEffect, &AffinityTerm)> {
    let (near, apart) = (&pod.spec.affinity, &pod.spec.anti_affinity);
    let required = near.required.iter().map(|term| (TermEffect::Near, term));
    let avoided = apart.required.iter().map(|term| (TermEffect::Apart, term));
    let liked = near.preferred.iter().map(|(weight, term)| (TermEffect::Weight(*weight), term));
    let disliked = apart.preferred.iter().map(|(weight, term)| (TermEffect::Weight(-*weight), term));
    required.chain(avoided).chain(liked).chain(disliked)
}
