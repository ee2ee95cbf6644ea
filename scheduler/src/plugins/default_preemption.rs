//! Preempts pods of lower priority: as few and as unimportant ones as possible, avoiding budget violations.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::budgets::Budgets;
use crate::framework::{
    Candidate, Filters, Plugin, PluginError, Point, PostFilter, PostFilterInput, Reason, Rejection, fits, summary,
};
use crate::snapshot::NodeState;
use podmodel::Pod;

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_CANDIDATE: &str = "no candidate node for preemption";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

#[derive(Debug, Clone)]
pub(crate) struct DefaultPreemption {
    /// The percentage of candidate nodes to evaluate, and the minimum number.
    pub min_candidate_nodes_percentage: usize,
    pub min_candidate_nodes_absolute: usize,
}

impl Default for DefaultPreemption {
    fn default() -> DefaultPreemption {
        DefaultPreemption { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PostFilter]
    }

    fn post_filter(&self, input: &PostFilterInput) -> PostFilter {
        if let Some(why) = ineligible(input) {
            return PostFilter::Nothing { text: format!("preemption: {why}"), clears: false };
        }
        let (candidates, refused) = self.candidates(input);
        if candidates.is_empty() {
            return PostFilter::Nothing { text: nothing(input.failure.node_count, &refused), clears: true };
        }
        let screened = match screen_candidates(input, candidates) {
            Ok(screened) => screened,
            Err(why) => return PostFilter::Nothing { text: format!("preemption: {why}"), clears: false },
        };
        match screened.into_iter().min_by(|one, other| preferred(one, other)) {
            Some(best) => PostFilter::Preempt { node: best.node, victims: best.victims.clone() },
            None => PostFilter::Nothing { text: format!("preemption: {NO_CANDIDATE}"), clears: false },
        }
    }
}

/// The candidates that the plugins of the profile leave.
fn screen_candidates(
    input: &PostFilterInput,
    mut candidates: Vec<Arc<Candidate>>,
) -> Result<Vec<Arc<Candidate>>, PluginError> {
    for one in input.profile.plugins() {
        candidates = one.plugin.filter_candidates(input.cycle, candidates)?;
    }
    Ok(candidates)
}

/// The preemption result of a node.
enum NodeResult {
    Found(Arc<Candidate>),
    Closed(Rejection),
}

impl DefaultPreemption {
    /// The candidates, and the reasons of nodes without one.
    fn candidates(&self, input: &PostFilterInput) -> (Vec<Arc<Candidate>>, Vec<Reason>) {
        let Some(filters) = input.filters else { return Default::default() };
        let mut filters = filters.clone();
        filters.active.retain(|position| input.profile.plugin(*position).supports_preemption());
        let filters = &filters;
        let hopeful = input.failure.by_node().filter(|(_, _, rejection)| !rejection.is_final);
        let nodes: Vec<&NodeState> = hopeful.filter_map(|(id, _, _)| input.cycle.snapshot.node(id)).collect();
        let search = Search::new(input, filters);
        let enough = self.enough(nodes.len());
        let start = usize::try_from(input.chance).unwrap_or(0).checked_rem(nodes.len()).unwrap_or(0);
        let (mut candidates, mut refused, mut is_harmless) = (Vec::new(), Vec::new(), false);
        for node in nodes[start..].iter().chain(&nodes[..start]) {
            match &*search.node_result(node) {
                NodeResult::Found(candidate) => {
                    is_harmless |= candidate.violations == 0;
                    candidates.push(candidate.clone());
                }
                NodeResult::Closed(rejection) => refused.extend(rejection.reasons.iter().cloned()),
            }
            if is_harmless && candidates.len() >= enough {
                break;
            }
        }
        (candidates, refused)
    }

    fn enough(&self, nodes: usize) -> usize {
        (nodes * self.min_candidate_nodes_percentage / 100).max(self.min_candidate_nodes_absolute).min(nodes)
    }
}

/// Why a pod may not preempt others; None if it may.
fn ineligible(input: &PostFilterInput) -> Option<&'static str> {
    let (pod, snapshot) = (input.cycle.pod, input.cycle.snapshot);
    if !pod.preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let kept = snapshot.nominated_node(&pod.uid).unwrap_or(&pod.nominated_node_name);
    let node = snapshot.find(kept)?;
    let is_lost = input.failure.by_node().any(|(id, _, rejection)| id == node.id && rejection.is_final);
    let is_ending = |other: &Arc<Pod>| other.is_terminating && other.is_victim && other.priority < pod.priority;
    // A pod whose victims are still terminating waits for them.
    (!is_lost && node.pods.iter().any(is_ending))
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The search for candidates.
struct Search<'a> {
    input: &'a PostFilterInput<'a>,
    filters: &'a Filters<'a>,
    budgets: Budgets,
    /// Whether results depend only on the spec, the priority and the node.
    is_local: bool,
}

impl<'a> Search<'a> {
    fn new(input: &'a PostFilterInput<'a>, filters: &'a Filters<'a>) -> Search<'a> {
        let budgets = Budgets::read(input.cycle.snapshot);
        let all_local = filters.active.iter().all(|position| input.profile.plugin(*position).is_local());
        Search { input, filters, is_local: all_local && budgets.is_empty(), budgets }
    }

    /// Results of an equal pod are valid until the node changes.
    fn node_result(&self, node: &NodeState) -> Arc<NodeResult> {
        let (snapshot, priority) = (self.input.cycle.snapshot, self.input.cycle.pod.priority);
        let generation = snapshot.generation_of(node.id);
        let preemptions = self.input.preemptions.filter(|_| self.is_local && !snapshot.is_kept(node.id));
        if let Some(known) = preemptions.and_then(|preemptions| preemptions.borrow().get(node.id, generation, priority))
        {
            return known;
        }
        let found = match select_victims(self.input, self.filters, node, &self.budgets) {
            Ok(candidate) => NodeResult::Found(Arc::new(candidate)),
            Err(rejection) => NodeResult::Closed(rejection),
        };
        let found = Arc::new(found);
        if let Some(preemptions) = preemptions {
            preemptions.borrow_mut().put(node.id, generation, priority, found.clone());
        }
        found
    }
}

/// The minimal victims on a node: all pods of lower priority are removed, and added back one by one while the pod
/// still fits.
fn select_victims(
    input: &PostFilterInput,
    filters: &Filters,
    node: &NodeState,
    budgets: &Budgets,
) -> Result<Candidate, Rejection> {
    let cycle = input.cycle;
    let mut lower: Vec<Arc<Pod>> = node.pods.iter().filter(|one| one.priority < cycle.pod.priority).cloned().collect();
    if lower.is_empty() {
        return Err(Rejection::unresolvable(NO_VICTIMS));
    }
    let (mut node, mut filters) = (node.clone(), filters.clone());
    lower.iter().for_each(|one| filters.remove(cycle, one, &mut node));
    fits(cycle, &filters, &node).map_err(|(_, rejection)| rejection)?;
    lower.sort_by(importance);
    let (guarded, free) = budgets.split(lower);
    let (mut victims, mut violations) = (Vec::new(), 0);
    for (one, is_guarded) in guarded.into_iter().map(|one| (one, true)).chain(free.into_iter().map(|one| (one, false)))
    {
        filters.add(cycle, &one, &mut node);
        if fits(cycle, &filters, &node).is_err() {
            filters.remove(cycle, &one, &mut node);
            violations += usize::from(is_guarded);
            victims.push(one);
        }
    }
    if victims.is_empty() {
        return Err(Rejection::unschedulable(NO_VICTIMS));
    }
    victims.sort_by(importance);
    Ok(Candidate { node: node.id, victims, violations })
}

/// The more important pod first: by priority, then by start time.
fn importance(one: &Arc<Pod>, other: &Arc<Pod>) -> Ordering {
    other.priority.cmp(&one.priority).then_with(|| since(one).cmp(&since(other)))
}

/// Pods that have not started come last.
fn since(pod: &Pod) -> (bool, i64, u32) {
    pod.started.map_or((true, 0, 0), |time| (false, time.seconds, time.nanos))
}

/// The better candidate: fewer budget violations, then less important victims, then fewer, then those that started
/// last. The first one if all is equal.
fn preferred(one: &Candidate, other: &Candidate) -> Ordering {
    let highest = |node_result: &Candidate| node_result.victims.first().map(|victim| victim.priority);
    // Each victim counts at least one, even with a negative priority.
    let sum = |node_result: &Candidate| -> i64 {
        node_result.victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum()
    };
    let earliest = |node_result: &Candidate| {
        let top = highest(node_result);
        node_result.victims.iter().filter(|victim| Some(victim.priority) == top).map(|victim| since(victim)).min()
    };
    (one.violations.cmp(&other.violations))
        .then_with(|| highest(one).cmp(&highest(other)))
        .then_with(|| sum(one).cmp(&sum(other)))
        .then_with(|| one.victims.len().cmp(&other.victims.len()))
        .then_with(|| Reverse(earliest(one)).cmp(&Reverse(earliest(other))))
}

fn nothing(node_count: usize, refused: &[Reason]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    refused.iter().for_each(|reason| *counts.entry(reason).or_default() += 1);
    let tried: usize = counts.values().sum();
    if node_count > tried {
        counts.insert(NOT_HELPFUL, node_count - tried);
    }
    format!("preemption: 0/{node_count} nodes are available:{}", summary(&counts))
}
