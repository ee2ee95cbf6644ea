//! Terms of affinity of the pods that have nodes: how many pods with each term there are, by node. Pods of one
//! template have the same terms.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::Str;

use super::counts::Counts;
use super::{NodeId, Topology};
use crate::model::{AffinityTerm, Labels, Pod};

/// What a term does to a pod that it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Keeps it away.
    Apart,
    /// Needed that one like it is near.
    Near,
    /// Draws it near by a weight, or away where that is negative.
    Weight(i64),
}

#[derive(Debug, Default)]
pub struct AffinityIndex {
    terms: HashMap<Wish, HashMap<AffinityTerm, Counts>>,
    /// How many terms there are by key.
    keys: BTreeMap<Str, usize>,
}

impl AffinityIndex {
    /// Terms of placed pods that mean this pod, with the nodes of those pods.
    pub fn meaning<'a>(
        &'a self,
        pod: &'a Pod,
        namespace_labels: &'a Labels,
        wanted: impl Fn(Wish) -> bool,
    ) -> impl Iterator<Item = (Wish, &'a AffinityTerm, &'a Counts)> {
        let terms = self.terms.iter().filter(move |(wish, _)| wanted(**wish));
        let terms = terms.flat_map(|(wish, terms)| terms.iter().map(|(term, counts)| (*wish, term, counts)));
        terms.filter(move |(_, term, _)| term.matches(&pod.namespace, &pod.labels, namespace_labels))
    }

    /// Keys of terms whose domains nobody follows yet.
    pub fn unfollowed(&self, topology: &Topology) -> Vec<Str> {
        let keys = self.keys.keys().filter(|key| topology.domains(key).is_none());
        keys.cloned().collect()
    }

    pub fn has(&self, wanted: impl Fn(Wish) -> bool) -> bool {
        self.terms.keys().any(|wish| wanted(*wish))
    }

    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: NodeId) {
        for (wish, term) in wishes(pod) {
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
        for (wish, term) in wishes(pod) {
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
pub fn wishes(pod: &Pod) -> impl Iterator<Item = (Wish, &AffinityTerm)> {
    let (near, apart) = (&pod.spec.affinity, &pod.spec.anti_affinity);
    let required = near.required.iter().map(|term| (Wish::Near, term));
    let avoided = apart.required.iter().map(|term| (Wish::Apart, term));
    let liked = near.preferred.iter().map(|(weight, term)| (Wish::Weight(*weight), term));
    let disliked = apart.preferred.iter().map(|(weight, term)| (Wish::Weight(-*weight), term));
    required.chain(avoided).chain(liked).chain(disliked)
}
