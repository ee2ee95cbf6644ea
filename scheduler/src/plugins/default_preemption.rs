//! Makes room for a pod by ending pods of less priority: as few and as unimportant ones as will do, and
//! budgets are kept where there is another way.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::budgets::Budgets;
use crate::cycle::{fits, summary};
use crate::framework::{Candidate, Plugin, Point, PostFilter, PostFiltering, Reason, Refusal};
use crate::model::Pod;
use crate::profile::Filters;
use crate::snapshot::NodeState;

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_CANDIDATE: &str = "no candidate node for preemption";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

#[derive(Debug, Clone)]
pub struct DefaultPreemption {
    /// Of the nodes where it may help, so many are tried, and no fewer than that number of them.
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

    fn post_filter(&self, asked: &PostFiltering) -> PostFilter {
        if let Some(why) = ineligible(asked) {
            return PostFilter::Nothing { text: format!("preemption: {why}"), clears: false };
        }
        let (candidates, refused) = self.candidates(asked);
        if candidates.is_empty() {
            return PostFilter::Nothing { text: nothing(asked.failure.node_count, &refused), clears: true };
        }
        let screened = match screened(asked, candidates) {
            Ok(screened) => screened,
            Err(why) => return PostFilter::Nothing { text: format!("preemption: {why}"), clears: false },
        };
        match screened.into_iter().min_by(|one, other| preferred(one, other)) {
            Some(best) => PostFilter::Preempt { node: best.node, victims: best.victims.clone() },
            None => PostFilter::Nothing { text: format!("preemption: {NO_CANDIDATE}"), clears: false },
        }
    }
}

/// What the plugins of the profile leave of the ways to make room.
fn screened(asked: &PostFiltering, mut candidates: Vec<Arc<Candidate>>) -> Result<Vec<Arc<Candidate>>, String> {
    for one in asked.profile.plugins() {
        candidates = one.plugin.screen(asked.cycle, candidates)?;
    }
    Ok(candidates)
}

/// What there is to do on a node.
enum Way {
    Found(Arc<Candidate>),
    Closed(Refusal),
}

impl DefaultPreemption {
    /// Ways to make room, and what was said of nodes where there is none.
    fn candidates(&self, asked: &PostFiltering) -> (Vec<Arc<Candidate>>, Vec<Reason>) {
        let Some(filters) = asked.filters else { return Default::default() };
        let mut filters = filters.clone();
        filters.active.retain(|position| asked.profile.plugin(*position).foresees());
        let filters = &filters;
        let hopeful = asked.failure.by_node().filter(|(_, _, refusal)| !refusal.is_final);
        let nodes: Vec<&NodeState> = hopeful.filter_map(|(id, _, _)| asked.cycle.snapshot.node(id)).collect();
        let search = Search::new(asked, filters);
        let enough = self.enough(nodes.len());
        let start = usize::try_from(asked.chance).unwrap_or(0).checked_rem(nodes.len()).unwrap_or(0);
        let (mut candidates, mut refused, mut is_harmless) = (Vec::new(), Vec::new(), false);
        for node in nodes[start..].iter().chain(&nodes[..start]) {
            match &*search.way(node) {
                Way::Found(candidate) => {
                    is_harmless |= candidate.violations == 0;
                    candidates.push(candidate.clone());
                }
                Way::Closed(refusal) => refused.extend(refusal.reasons.iter().cloned()),
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

/// Why a pod may not end others; None where it may.
fn ineligible(asked: &PostFiltering) -> Option<&'static str> {
    let (pod, snapshot) = (asked.cycle.pod, asked.cycle.snapshot);
    if !pod.preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let kept = snapshot.nominated_node(&pod.uid).unwrap_or(&pod.nominated_node_name);
    let node = snapshot.find(kept)?;
    let is_lost = asked.failure.by_node().any(|(id, _, refusal)| id == node.id && refusal.is_final);
    let is_ending = |other: &Arc<Pod>| other.is_terminating && other.is_victim && other.priority < pod.priority;
    // Who has made room once waits until it is there.
    (!is_lost && node.pods.iter().any(is_ending))
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The look for ways on one node after the other.
struct Search<'a> {
    asked: &'a PostFiltering<'a>,
    filters: &'a Filters<'a>,
    budgets: Budgets,
    /// Whether what was found depends on the spec, the priority and the node alone.
    is_local: bool,
}

impl<'a> Search<'a> {
    fn new(asked: &'a PostFiltering<'a>, filters: &'a Filters<'a>) -> Search<'a> {
        let budgets = Budgets::read(asked.cycle.snapshot);
        let all_local = filters.active.iter().all(|position| asked.profile.plugin(*position).is_local());
        Search { asked, filters, is_local: all_local && budgets.is_empty(), budgets }
    }

    /// What was found for an equal pod holds until the node changes.
    fn way(&self, node: &NodeState) -> Arc<Way> {
        let (snapshot, priority) = (self.asked.cycle.snapshot, self.asked.cycle.pod.priority);
        let generation = snapshot.generation_of(node.id);
        let ways = self.asked.ways.filter(|_| self.is_local && !snapshot.is_kept(node.id));
        if let Some(known) = ways.and_then(|ways| ways.borrow().get(node.id, generation, priority)) {
            return known;
        }
        let found = match try_on(self.asked, self.filters, node, &self.budgets) {
            Ok(candidate) => Way::Found(Arc::new(candidate)),
            Err(refusal) => Way::Closed(refusal),
        };
        let found = Arc::new(found);
        if let Some(ways) = ways {
            ways.borrow_mut().put(node.id, generation, priority, found.clone());
        }
        found
    }
}

/// The least that has to go from a node: all that may go is taken away, and then put back one by one as long
/// as the pod still fits.
fn try_on(asked: &PostFiltering, filters: &Filters, node: &NodeState, budgets: &Budgets) -> Result<Candidate, Refusal> {
    let cycle = asked.cycle;
    let mut lower: Vec<Arc<Pod>> = node.pods.iter().filter(|one| one.priority < cycle.pod.priority).cloned().collect();
    if lower.is_empty() {
        return Err(Refusal::unresolvable(NO_VICTIMS));
    }
    let (mut node, mut filters) = (node.clone(), filters.clone());
    lower.iter().for_each(|one| filters.remove(cycle, one, &mut node));
    fits(cycle, &filters, &node).map_err(|(_, refusal)| refusal)?;
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
        return Err(Refusal::unschedulable(NO_VICTIMS));
    }
    victims.sort_by(importance);
    Ok(Candidate { node: node.id, victims, violations })
}

/// The more important pod comes first: by priority, then whoever runs for longest.
fn importance(one: &Arc<Pod>, other: &Arc<Pod>) -> Ordering {
    other.priority.cmp(&one.priority).then_with(|| since(one).cmp(&since(other)))
}

/// Who has not started yet has started last.
fn since(pod: &Pod) -> (bool, i64, u32) {
    pod.started.map_or((true, 0, 0), |time| (false, time.seconds, time.nanos))
}

/// The better way: fewer budgets hurt, then less important victims, then fewer of them, then those that
/// started last. The first one tried where all is equal.
fn preferred(one: &Candidate, other: &Candidate) -> Ordering {
    let highest = |way: &Candidate| way.victims.first().map(|victim| victim.priority);
    // Each victim counts at least one, also one of a negative priority.
    let sum = |way: &Candidate| -> i64 {
        way.victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum()
    };
    let earliest = |way: &Candidate| {
        let top = highest(way);
        way.victims.iter().filter(|victim| Some(victim.priority) == top).map(|victim| since(victim)).min()
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
