//! Counts of pods that match a query, by node. Pods are grouped by namespace and labels: a query is evaluated once
//! for each group, and from then on an added or removed pod updates the counts of the queries that its group matches.

use std::collections::HashMap;
use std::sync::Arc;

use api::Str;

use super::counts::Counts;
use super::{Namespaces, NodeId};
use podmodel::{AffinityTerm, Labels, Pod, Selector};

/// The maximum number of queries; the least recently used one is evicted.
const MOST_QUESTIONS: usize = 4096;

/// Selects pods by namespace and labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSelector {
    /// Sorted.
    pub namespaces: Vec<Str>,
    pub namespace_selector: Selector,
    pub selector: Selector,
}

impl PodSelector {
    /// Selects pods of one namespace.
    pub fn of_namespace(namespace: &Str, selector: Selector) -> PodSelector {
        PodSelector { namespaces: vec![namespace.clone()], namespace_selector: Selector::nothing(), selector }
    }

    pub(crate) fn of_term(term: &AffinityTerm) -> PodSelector {
        PodSelector {
            namespaces: term.namespaces.clone(),
            namespace_selector: term.namespace_selector.clone(),
            selector: term.selector.clone(),
        }
    }

    /// Whether a pod with these labels is selected.
    pub fn matches(&self, namespace: &str, labels: &Labels, namespaces: &Namespaces) -> bool {
        self.selector.matches(labels) && self.is_in(namespace, namespaces)
    }

    fn is_in(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        self.namespaces.binary_search_by(|one| one.as_str().cmp(namespace)).is_ok()
            || self.namespace_selector.matches(namespaces.get(namespace).unwrap_or(&Labels::default()))
    }

    /// Whether the result depends on namespace labels.
    fn reads_namespaces(&self) -> bool {
        !self.namespace_selector.is_nothing() && !self.namespace_selector.is_everything()
    }
}

/// Counts the pods that match all of these selectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CountQuery {
    pub all: Vec<PodSelector>,
    /// Whether terminating pods count.
    pub with_terminating: bool,
}

/// The number of matching pods on each node, for selectors that are in use.
#[derive(Debug, Default)]
pub struct MatchIndex {
    groups: HashMap<Str, HashMap<Labels, Group>>,
    numbers: HashMap<CountQuery, usize>,
    /// None if a query was evicted.
    results: Vec<Option<QueryCounts>>,
    tick: u64,
}

#[derive(Debug, Default)]
struct Group {
    living: Counts,
    terminating: Counts,
    /// Numbers of the queries that this group matches.
    queries: Vec<usize>,
}

#[derive(Debug)]
struct QueryCounts {
    query: CountQuery,
    counts: Counts,
    last_used: u64,
}

impl MatchIndex {
    /// The counts of a registered query.
    pub(crate) fn counts_of(&self, query: &CountQuery) -> Option<&Counts> {
        let number = *self.numbers.get(query)?;
        self.results[number].as_ref().map(|result| &result.counts)
    }

    /// Registers a query.
    pub(super) fn put(&mut self, query: CountQuery, namespaces: &Namespaces) {
        self.tick += 1;
        if let Some(result) = self.numbers.get(&query).and_then(|number| self.results[*number].as_mut()) {
            result.last_used = self.tick;
            return;
        }
        let number = self.free_number();
        let mut counts = Counts::default();
        for (namespace, groups) in &mut self.groups {
            for (labels, group) in groups.iter_mut() {
                if query.all.iter().all(|who| who.matches(namespace, labels, namespaces)) {
                    group.count_into(&mut counts, query.with_terminating);
                    group.queries.push(number);
                }
            }
        }
        self.numbers.insert(query.clone(), number);
        self.results[number] = Some(QueryCounts { query, counts, last_used: self.tick });
    }

    fn free_number(&mut self) -> usize {
        if self.numbers.len() >= MOST_QUESTIONS {
            let oldest =
                self.results.iter().enumerate().filter_map(|(at, one)| Some((one.as_ref()?.last_used, at))).min();
            oldest.into_iter().for_each(|(_, at)| self.evict(at));
        }
        if let Some(free) = self.results.iter().position(Option::is_none) {
            return free;
        }
        self.results.push(None);
        self.results.len() - 1
    }

    fn evict(&mut self, number: usize) {
        let Some(result) = self.results[number].take() else { return };
        self.numbers.remove(&result.query);
        for group in self.groups.values_mut().flat_map(HashMap::values_mut) {
            group.queries.retain(|one| *one != number);
        }
    }

    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: NodeId, namespaces: &Namespaces) {
        let groups = self.groups.entry(pod.namespace.clone()).or_default();
        if !groups.contains_key(&pod.labels) {
            let results = self.results.iter().enumerate().filter_map(|(at, one)| Some((at, &one.as_ref()?.query)));
            let means =
                |query: &CountQuery| query.all.iter().all(|w| w.matches(&pod.namespace, &pod.labels, namespaces));
            let queries = results.filter(|(_, query)| means(query)).map(|(at, _)| at).collect();
            groups.insert(pod.labels.clone(), Group { queries, ..Group::default() });
        }
        let Some(group) = groups.get_mut(&pod.labels) else { return };
        group.side(pod).add(node, 1);
        for &at in &group.queries {
            if let Some(result) = self.results[at].as_mut().filter(|result| result.query.counts(pod)) {
                result.counts.add(node, 1);
            }
        }
    }

    pub(super) fn remove(&mut self, pod: &Arc<Pod>, node: NodeId) {
        let Some(groups) = self.groups.get_mut(&pod.namespace) else { return };
        let Some(group) = groups.get_mut(&pod.labels) else { return };
        group.side(pod).remove(node, 1);
        for &at in &group.queries {
            if let Some(result) = self.results[at].as_mut().filter(|result| result.query.counts(pod)) {
                result.counts.remove(node, 1);
            }
        }
        if group.living.is_empty() && group.terminating.is_empty() {
            groups.remove(&pod.labels);
            if groups.is_empty() {
                self.groups.remove(&pod.namespace);
            }
        }
    }

    /// Queries that depend on namespace labels are evaluated again on next use.
    pub(super) fn namespaces_changed(&mut self) {
        let reads = |result: &QueryCounts| result.query.all.iter().any(PodSelector::reads_namespaces);
        let stale = self.results.iter().enumerate().filter(|(_, one)| one.as_ref().is_some_and(reads));
        for number in stale.map(|(at, _)| at).collect::<Vec<_>>() {
            self.evict(number);
        }
    }
}

impl CountQuery {
    fn counts(&self, pod: &Pod) -> bool {
        self.with_terminating || !pod.is_terminating
    }
}

impl Group {
    fn side(&mut self, pod: &Pod) -> &mut Counts {
        if pod.is_terminating { &mut self.terminating } else { &mut self.living }
    }

    fn count_into(&self, counts: &mut Counts, with_terminating: bool) {
        let more = self.terminating.iter().filter(|_| with_terminating);
        self.living.iter().chain(more).for_each(|(node, count)| counts.add(node, count));
    }
}
