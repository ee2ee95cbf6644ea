//! One scheduling cycle: a function of the snapshot, the profile, the pod and a seeded random number. Cached results
//! of equal pods do not change the decision.

mod memo;
mod score;
mod times;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use api::Str;
use client::Random;
use tokio::time::Instant;

use crate::framework::{
    Cycle, Failure, Filters, Plugin, Point, PostFilter, PostFilterInput, PreFilter, PreemptionCache, Profile,
    Rejection, Slot, fits,
};
use crate::snapshot::{NodeId, NodeState, Snapshot};
use podmodel::Pod;

use memo::{Memo, RejectionCause, Shape};
pub use times::{Evaluations, Times};

/// Up to this number all nodes are evaluated.
const MIN_FEASIBLE_NODES: usize = 100;
const MIN_PERCENTAGE: usize = 5;

/// The result of a scheduling cycle.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Place {
        node: NodeId,
        /// The numbers of evaluated and of feasible nodes.
        evaluated: usize,
        feasible: usize,
    },
    /// No node is feasible now; preemption may help.
    Wait {
        failure: Failure,
        preemption: Option<Preemption>,
        /// The nomination is cleared.
        is_cleared: bool,
    },
}

/// Victims that are deleted so that the pod fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Preemption {
    pub node: NodeId,
    pub victims: Vec<Arc<Pod>>,
}

/// The decision with the state that Reserve needs.
pub struct CycleResult {
    pub decision: Decision,
    /// By plugin of the profile.
    pub slots: Vec<Slot>,
    /// The feasible nodes.
    pub found: Vec<NodeId>,
    pub times: Times,
}

/// Schedules the pods of one profile.
pub struct SchedulingAlgorithm {
    pub profile: Arc<Profile>,
    memo: Memo,
    /// The start of the next node search, so that all nodes get their turn.
    start: usize,
    decisions: u64,
    pub evaluations: Evaluations,
}

impl SchedulingAlgorithm {
    /// A decider for the pods of a profile.
    pub fn new(profile: Arc<Profile>) -> SchedulingAlgorithm {
        let memo = Memo::new(&profile);
        SchedulingAlgorithm { profile, memo, start: 0, decisions: 0, evaluations: Evaluations::default() }
    }

    /// Decides where a pod is placed.
    pub fn decide(&mut self, snapshot: &mut Snapshot, pod: &Arc<Pod>, random: &Random) -> CycleResult {
        let profile = self.profile.clone();
        let began = Instant::now();
        self.decisions += 1;
        let mut times = Times::of(self.decisions);
        snapshot.update_order();
        for one in profile.plugins() {
            one.plugin.prepare(snapshot, pod);
        }
        let cycle = Cycle { snapshot, pod };
        if snapshot.node_count() == 0 {
            let decision = Decision::Wait { failure: Failure::new(0), preemption: None, is_cleared: true };
            return CycleResult { decision, slots: Vec::new(), times, found: Vec::new() };
        }
        let asked = pre_filter(&profile, cycle, &mut times, &mut self.evaluations);
        times.point(Point::PreFilter, began);
        match asked {
            Ok((filters, narrowed)) => self.evaluate(cycle, filters, narrowed, random, times),
            Err((position, rejection)) => {
                let failure = Failure::for_all_nodes(snapshot.node_count(), position, rejection);
                run_post_filter(&profile, cycle, failure, None, random, times)
            }
        }
    }

    #[cfg(test)]
    fn forget(&mut self) {
        self.memo = Memo::new(&self.profile);
    }

    /// Like [`SchedulingAlgorithm::decide`], but without side effects on the node order.
    pub fn what_if(&mut self, snapshot: &mut Snapshot, pod: &Arc<Pod>, random: &Random) -> CycleResult {
        let start = self.start;
        let decided = self.decide(snapshot, pod, random);
        self.start = start;
        decided
    }

    fn evaluate(
        &mut self,
        cycle: Cycle,
        filters: Filters,
        narrowed: PreFilterRestriction,
        random: &Random,
        mut times: Times,
    ) -> CycleResult {
        let (profile, began) = (self.profile.clone(), Instant::now());
        let shape = self.memo.shape(&profile, cycle, &filters);
        let enough = feasible_nodes_to_find(cycle.snapshot.node_count(), profile.percentage_of_nodes_to_score);
        let failure = Failure::new(cycle.snapshot.node_count());
        let fast = filters.active.iter().copied().filter(|position| profile.plugin(*position).has_fast_rejections());
        let fast = fast.collect();
        let mut search = Search { cycle, filters: &filters, shape, failure, recorded: Vec::new(), fast };
        let (found, evaluated) = search.find(&narrowed, &mut self.start, enough);
        times.point(Point::Filter, began);
        sample(cycle, &filters, self.start, &mut times, &mut self.evaluations);
        if search.failure.error.is_some() {
            let decision = Decision::Wait { failure: search.failure, preemption: None, is_cleared: false };
            return CycleResult { decision, slots: Vec::new(), found: Vec::new(), times };
        }
        if found.is_empty() {
            let failure = Failure { excluded_by: narrowed.by, ..search.failure };
            let looked = Some((&filters, &search.shape.preemptions));
            return run_post_filter(&profile, cycle, failure, looked, random, times);
        }
        let began = Instant::now();
        let node = match found.as_slice() {
            [one] => *one,
            _ => {
                let mut instruments = (&mut times, &mut self.evaluations);
                score::best(&profile, cycle, &filters.slots, &found, search.shape, random, &mut instruments)
            }
        };
        times.point(Point::Score, began);
        let decision = Decision::Place { node, evaluated, feasible: found.len() };
        CycleResult { decision, slots: filters.slots, found, times }
    }
}

/// Counts the active filters, and in sampled cycles times each on one node: during the search most results are
/// cached, and a clock would cost more than the call.
fn sample(cycle: Cycle, filters: &Filters, start: usize, times: &mut Times, evaluations: &mut Evaluations) {
    for position in &filters.active {
        evaluations.count(*position, Point::Filter);
    }
    let first = cycle.snapshot.order().get(start).and_then(|id| cycle.snapshot.node(*id));
    let Some(node) = first.filter(|_| times.is_sampled()) else { return };
    for position in &filters.active {
        let plugin = filters.profile.plugin(*position);
        let ask = || plugin.filter(cycle, &filters.slots[*position], node);
        let _ = times.plugin(*position, Point::Filter, |verdict| verdict.is_ok(), ask);
    }
}

/// The number of feasible nodes to find.
pub(crate) fn feasible_nodes_to_find(nodes: usize, percentage: Option<u8>) -> usize {
    let adaptive = || 50usize.saturating_sub(nodes / 125).max(MIN_PERCENTAGE);
    let percentage = percentage.filter(|percentage| *percentage > 0).map_or_else(adaptive, usize::from);
    if nodes < MIN_FEASIBLE_NODES || percentage >= 100 {
        return nodes;
    }
    (nodes * percentage / 100).max(MIN_FEASIBLE_NODES)
}

/// The restriction of PreFilter, and the plugins that set it.
#[derive(Default)]
struct PreFilterRestriction {
    only: Option<BTreeSet<Str>>,
    by: Vec<&'static str>,
}

/// Runs PreFilter of all plugins.
fn pre_filter<'a>(
    profile: &'a Profile,
    cycle: Cycle,
    times: &mut Times,
    evaluations: &mut Evaluations,
) -> Result<(Filters<'a>, PreFilterRestriction), (usize, Rejection)> {
    let mut slots: Vec<Slot> = profile.plugins().iter().map(|_| Slot::default()).collect();
    let mut skipped = BTreeSet::new();
    let mut narrowed = PreFilterRestriction::default();
    for (position, plugin) in profile.at(Point::PreFilter) {
        let is_well = |asked: &PreFilter| !matches!(asked, PreFilter::Refuse(_));
        let asked = times.plugin(position, Point::PreFilter, is_well, || plugin.pre_filter(cycle));
        if !matches!(asked, PreFilter::Skip) {
            evaluations.count(position, Point::PreFilter);
        }
        match asked {
            PreFilter::Skip => drop(skipped.insert(position)),
            PreFilter::Check(slot) => slots[position] = slot,
            PreFilter::Refuse(rejection) => return Err((position, rejection)),
            PreFilter::Only(names, slot) => {
                slots[position] = slot;
                narrowed.by.push(plugin.name());
                let both = narrowed.only.map(|known| known.intersection(&names).cloned().collect());
                let names: BTreeSet<Str> = both.unwrap_or(names);
                if names.is_empty() {
                    return Err((position, no_node_left(narrowed.by)));
                }
                narrowed.only = Some(names);
            }
        }
    }
    let all = profile.positions(Point::Filter).iter().copied();
    let active = all.filter(|position| !skipped.contains(position)).collect();
    Ok((Filters { profile, active, slots }, narrowed))
}

fn no_node_left(mut plugins: Vec<&str>) -> Rejection {
    plugins.sort_unstable();
    Rejection::unresolvable(match plugins.as_slice() {
        [one] => format!("node(s) didn't satisfy plugin {one}"),
        _ => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", plugins.join(" ")),
    })
}

/// The search over the nodes.
struct Search<'a> {
    cycle: Cycle<'a>,
    filters: &'a Filters<'a>,
    shape: &'a mut Shape,
    failure: Failure,
    /// By cached refusal: its index in the failure, once it has one.
    recorded: Vec<Option<u32>>,
    /// Positions of active filters with fast rejections.
    fast: Vec<usize>,
}

impl<'a> Search<'a> {
    /// The feasible nodes, and the number of evaluated nodes.
    fn find(&mut self, narrowed: &PreFilterRestriction, start: &mut usize, enough: usize) -> (Vec<NodeId>, usize) {
        let kept = self.kept_node().filter(|node| narrowed.only.as_ref().is_none_or(|only| only.contains(node.name())));
        if let Some(node) = kept {
            // If the nominated node fits, no other is evaluated.
            if fits(self.cycle, self.filters, node).is_ok() {
                return (vec![node.id], 1);
            }
        }
        match &narrowed.only {
            Some(names) => self.among(names),
            None => match self.round(start, enough) {
                (found, _) if found.is_empty() && !self.fast.is_empty() && self.failure.error.is_none() => {
                    self.collect_rejections(start, enough)
                }
                looked => looked,
            },
        }
    }

    /// Nothing was found: collects the reasons of each node, in the same order.
    fn collect_rejections(&mut self, start: &mut usize, enough: usize) -> (Vec<NodeId>, usize) {
        self.fast.clear();
        self.recorded.clear();
        self.failure = Failure::new(self.failure.node_count);
        self.round(start, enough)
    }

    fn is_rejected_fast(&self, node: NodeId) -> bool {
        let refuses = |position: &usize| {
            let plugin = self.filters.profile.plugin(*position);
            plugin.rejects(self.cycle, &self.filters.slots[*position], node)
        };
        self.fast.iter().any(refuses)
    }

    fn kept_node(&self) -> Option<&'a NodeState> {
        let snapshot = self.cycle.snapshot;
        snapshot.find(snapshot.nominated_node(&self.cycle.pod.uid)?)
    }

    fn among(&mut self, names: &BTreeSet<Str>) -> (Vec<NodeId>, usize) {
        let nodes: Vec<&NodeState> = names.iter().filter_map(|name| self.cycle.snapshot.find(name)).collect();
        let found = nodes.iter().filter(|node| self.fits(node)).map(|node| node.id).collect();
        (found, nodes.len())
    }

    /// Evaluates nodes from the end of the last search until enough are found.
    fn round(&mut self, start: &mut usize, enough: usize) -> (Vec<NodeId>, usize) {
        let order = self.cycle.snapshot.order();
        let (mut found, mut evaluated) = (Vec::with_capacity(enough.min(order.len())), 0);
        let first = start.checked_rem(order.len()).unwrap_or(0);
        for id in order[first..].iter().chain(&order[..first]) {
            if self.failure.error.is_some() {
                break;
            }
            evaluated += 1;
            if self.is_rejected_fast(*id) {
                continue;
            }
            if self.is_known_to_fit(*id) || self.cycle.snapshot.node(*id).is_some_and(|node| self.fits(node)) {
                found.push(*id);
                if found.len() >= enough {
                    break;
                }
            }
        }
        *start = (first + evaluated).checked_rem(order.len()).unwrap_or(0);
        (found, evaluated)
    }

    fn is_known_to_fit(&self, id: NodeId) -> bool {
        let snapshot = self.cycle.snapshot;
        !snapshot.is_kept(id) && self.shape.is_known_to_fit(id, snapshot.generation_of(id))
    }

    fn fits(&mut self, node: &NodeState) -> bool {
        let verdict = match self.cycle.snapshot.is_kept(node.id) {
            false => self.shape.check(self.cycle, self.filters, node),
            true => fits(self.cycle, self.filters, node).map_err(|(position, why)| RejectionCause::Now(position, why)),
        };
        let Err(refused) = verdict else { return true };
        let place = match refused {
            RejectionCause::Now(position, rejection) if rejection.is_error => {
                self.failure.error.get_or_insert_with(|| (position, rejection.reasons.join(", ")));
                return false;
            }
            RejectionCause::Now(position, rejection) => self.failure.place(position, rejection),
            RejectionCause::Before(at) => self.index_of(at),
        };
        self.failure.nodes.push((node.id, place));
        false
    }

    /// Each cached rejection is added once, however many nodes have it.
    fn index_of(&mut self, at: usize) -> u32 {
        if self.recorded.len() <= at {
            self.recorded.resize(at + 1, None);
        }
        let (failure, known) = (&mut self.failure, &self.shape.rejections[at]);
        *self.recorded[at].get_or_insert_with(|| failure.place(known.position, known.rejection.clone()))
    }
}

/// Whether an assumed pod still fits its node, with all plugins evaluated again.
pub(crate) fn still_fits(profile: &Profile, snapshot: &mut Snapshot, pod: &Arc<Pod>, node: NodeId) -> bool {
    for one in profile.plugins() {
        one.plugin.prepare(snapshot, pod);
    }
    let cycle = Cycle { snapshot, pod };
    let Some(mut node) = snapshot.node(node).cloned() else { return false };
    let Ok((mut filters, narrowed)) = pre_filter(profile, cycle, &mut Times::default(), &mut Evaluations::default())
    else {
        return false;
    };
    // The pod itself is removed first.
    filters.remove(cycle, pod, &mut node);
    narrowed.only.is_none_or(|only| only.contains(node.name())) && filters.check(cycle, &node).is_ok()
}

/// The first local plugin that would reject the pod even if all its potential victims were removed.
pub(crate) fn find_permanent_rejection(
    profile: &Profile,
    snapshot: &Snapshot,
    pod: &Arc<Pod>,
    node: &NodeState,
) -> Option<&'static str> {
    let cycle = Cycle { snapshot, pod };
    let mut left = node.clone();
    for other in node.pods.iter().filter(|other| other.priority < pod.priority) {
        left.remove(&other.uid);
    }
    let local = profile.at(Point::Filter).filter(|(_, plugin)| plugin.is_local());
    let accepts = |plugin: &dyn Plugin| match plugin.pre_filter(cycle) {
        PreFilter::Skip => true,
        PreFilter::Refuse(_) => false,
        PreFilter::Check(slot) => plugin.filter(cycle, &slot, &left).is_ok(),
        PreFilter::Only(names, slot) => names.contains(left.name()) && plugin.filter(cycle, &slot, &left).is_ok(),
    };
    local.into_iter().find(|(_, plugin)| !accepts(*plugin)).map(|(_, plugin)| plugin.name())
}

/// No node is feasible: runs PostFilter.
fn run_post_filter(
    profile: &Profile,
    cycle: Cycle,
    mut failure: Failure,
    looked: Option<(&Filters, &RefCell<PreemptionCache>)>,
    random: &Random,
    mut times: Times,
) -> CycleResult {
    let (began, (filters, preemptions)) = (Instant::now(), looked.unzip());
    let (mut preemption, mut is_cleared) = (None, false);
    for (position, plugin) in profile.at(Point::PostFilter) {
        let asked = PostFilterInput { profile, cycle, filters, failure: &failure, preemptions, chance: random.next() };
        let is_well = |found: &PostFilter| matches!(found, PostFilter::Preempt { .. });
        match times.plugin(position, Point::PostFilter, is_well, || plugin.post_filter(&asked)) {
            PostFilter::Skip => {}
            PostFilter::Nothing { text, clears } => {
                failure.post_filter = text;
                is_cleared |= clears;
            }
            PostFilter::Preempt { node, victims } => {
                preemption = Some(Preemption { node, victims });
                break;
            }
        }
    }
    times.point(Point::PostFilter, began);
    let decision = Decision::Wait { failure, preemption, is_cleared };
    CycleResult { decision, slots: Vec::new(), found: Vec::new(), times }
}

#[cfg(test)]
mod tests;
