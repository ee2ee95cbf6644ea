//! Terms of affinity between pods. Labels of the pod itself that a term takes up by their keys are made
//! part of its selector here, as the API server does for pods that it creates.

use api::{Str, Tree};

use super::{Labels, Operator, Requirement, Selector, texts};

/// One term of pod affinity or anti-affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    pub selector: Selector,
    /// Sorted; the pod's own where the term names none and selects none.
    pub namespaces: Vec<Str>,
    /// Namespaces by their labels, besides those that are named.
    pub namespace_selector: Selector,
    pub topology_key: Str,
}

/// What a pod wants to be near to, or far from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodAffinity {
    pub required: Vec<AffinityTerm>,
    /// With their weights.
    pub preferred: Vec<(i64, AffinityTerm)>,
}

impl PodAffinity {
    /// Reads the `podAffinity` or `podAntiAffinity` of a pod.
    pub fn read(affinity: &Tree, namespace: &str, labels: &Labels) -> PodAffinity {
        let term = |term: &Tree| AffinityTerm::read(term, namespace, labels);
        let weighted = |one: &Tree| (one.int("weight").unwrap_or(0), term(one.at("podAffinityTerm")));
        let list = |name: &str| affinity.list(name).iter();
        PodAffinity {
            required: list("requiredDuringSchedulingIgnoredDuringExecution").map(term).collect(),
            preferred: list("preferredDuringSchedulingIgnoredDuringExecution").map(weighted).collect(),
        }
    }

    /// Whether there are no terms.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }
}

impl AffinityTerm {
    fn read(term: &Tree, namespace: &str, labels: &Labels) -> AffinityTerm {
        let mut selector = Selector::read(term.at("labelSelector"));
        for (list, operator) in [("matchLabelKeys", Operator::In), ("mismatchLabelKeys", Operator::NotIn)] {
            selector = with_own(selector, &texts(term.list(list)), operator, labels);
        }
        let mut namespaces = texts(term.list("namespaces"));
        if namespaces.is_empty() && !term.has("namespaceSelector") {
            namespaces.push(Str::new(namespace));
        }
        namespaces.sort();
        namespaces.dedup();
        AffinityTerm {
            selector,
            namespaces,
            namespace_selector: Selector::read(term.at("namespaceSelector")),
            topology_key: Str::new(term.str("topologyKey")),
        }
    }

    /// Whether a pod of a namespace with these labels is meant. `namespace_labels` are those of the namespace.
    pub fn matches(&self, namespace: &str, labels: &Labels, namespace_labels: &Labels) -> bool {
        self.selector.matches(labels)
            && (self.namespaces.binary_search_by(|one| one.as_str().cmp(namespace)).is_ok()
                || self.namespace_selector.matches(namespace_labels))
    }
}

/// The selector with what the pod itself has under some keys.
pub(super) fn with_own(selector: Selector, keys: &[Str], operator: Operator, labels: &Labels) -> Selector {
    let own = |key: &Str| Some(Requirement::new(key, operator, vec![Str::new(labels.get(key)?)]));
    keys.iter().filter_map(own).fold(selector, Selector::and)
}
