//! Chooses CPUs: whole parts of the machine first, and of those the parts with the smallest remainder.

use super::super::machine::{Machine, TopologyLevel};
use super::super::numa::combinations;
use crate::model::cpuset::CpuSet;

/// How CPUs are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AllocationStrategy {
    /// Prefers threads of different cores.
    pub(crate) spread: bool,
    /// Prefers CPUs that share a cache.
    pub(crate) by_cache: bool,
    /// Evenly over the needed NUMA nodes, in groups of so many.
    pub(crate) distribute: Option<usize>,
}

/// Too few free CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not enough cpus available to satisfy request: requested={wanted}, available={free}")]
pub struct NotEnough {
    pub(crate) wanted: usize,
    pub(crate) free: usize,
}

pub(crate) fn take_cpus(
    machine: &Machine,
    free: &CpuSet,
    wanted: usize,
    strategy: AllocationStrategy,
) -> Result<CpuSet, NotEnough> {
    if wanted > free.len() {
        return Err(NotEnough { wanted, free: free.len() });
    }
    let group = strategy.distribute.filter(|group| wanted.is_multiple_of(*group));
    let distributed = group.and_then(|group| distribute(machine, free, wanted, group));
    Ok(distributed.unwrap_or_else(|| pack(machine, free, wanted, strategy)))
}

/// Free CPUs, chosen CPUs, and how many are still needed.
struct CpuAccumulator<'a> {
    machine: &'a Machine,
    free: CpuSet,
    taken: CpuSet,
    needed: usize,
}

fn pack(machine: &Machine, free: &CpuSet, wanted: usize, strategy: AllocationStrategy) -> CpuSet {
    let mut pile = CpuAccumulator { machine, free: free.clone(), taken: CpuSet::default(), needed: wanted };
    let [outer, inner, core] = levels(machine);
    pile.take_whole(&[outer]);
    pile.take_whole(&[outer, inner]);
    if strategy.by_cache {
        pile.take_caches(&[outer, inner]);
    }
    if !strategy.spread {
        pile.take_whole(&[outer, inner, core]);
    }
    pile.take_single(&[outer, inner, core], strategy.spread);
    pile.taken
}

/// NUMA nodes and sockets, the larger first; then cores.
fn levels(machine: &Machine) -> [TopologyLevel; 3] {
    let (node, socket, core): (TopologyLevel, TopologyLevel, TopologyLevel) =
        (|cpu| cpu.node, |cpu| cpu.socket, |cpu| cpu.core);
    match machine.count(socket) >= machine.count(node) {
        true => [node, socket, core],
        false => [socket, node, core],
    }
}

impl CpuAccumulator<'_> {
    fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.without(cpus);
        self.taken = self.taken.with(cpus);
        self.needed -= cpus.len();
    }

    /// The free CPUs of the innermost parts: the parts with the fewest free ones first, at each level.
    fn order(&self, free: &CpuSet, levels: &[TopologyLevel]) -> Vec<(u32, CpuSet)> {
        let Some((level, inner)) = levels.split_first() else { return Vec::new() };
        let mut parts: Vec<(u32, CpuSet)> = self.machine.parts(free, *level).into_iter().collect();
        parts.sort_by_key(|(number, cpus)| (cpus.len(), *number));
        if inner.is_empty() {
            return parts;
        }
        parts.iter().flat_map(|(_, cpus)| self.order(cpus, inner)).collect()
    }

    /// Parts that are completely free.
    fn take_whole(&mut self, levels: &[TopologyLevel]) {
        let Some(level) = levels.last() else { return };
        let whole = self.machine.parts(&self.machine.all(), *level);
        for (number, cpus) in self.order(&self.free, levels) {
            let is_whole = whole.get(&number).is_some_and(|whole| whole.len() == cpus.len());
            if is_whole && cpus.len() <= self.needed {
                self.take(&cpus);
            }
        }
    }

    /// Whole caches; then, for the remainder, one cache that has enough.
    fn take_caches(&mut self, outer: &[TopologyLevel]) {
        let cache: TopologyLevel = |cpu| cpu.uncore;
        let levels: Vec<TopologyLevel> = outer.iter().copied().chain([cache]).collect();
        self.take_whole(&levels);
        for (_, cpus) in self.order(&self.free, &levels) {
            if self.needed == 0 {
                return;
            }
            if let Some(enough) = self.part_of_cache(&cpus) {
                self.take(&enough);
            }
        }
    }

    /// Whole cores of a cache, and a thread of one more core for the remainder.
    fn part_of_cache(&self, cpus: &CpuSet) -> Option<CpuSet> {
        let cores = self.machine.parts(cpus, |cpu| cpu.core);
        let threads = self.machine.cpus_per_core();
        let whole = cores.values().filter(|cpus| cpus.len() == threads);
        let in_order = whole
            .clone()
            .flat_map(CpuSet::iter)
            .chain(cores.values().filter(|cpus| cpus.len() < threads).flat_map(CpuSet::iter));
        let enough: CpuSet = in_order.take(self.needed).collect();
        (enough.len() == self.needed).then_some(enough)
    }

    fn take_single(&mut self, levels: &[TopologyLevel], spread: bool) {
        let mut cores: Vec<Vec<u32>> =
            self.order(&self.free, levels).into_iter().map(|(_, cpus)| cpus.iter().collect()).collect();
        let mut single: Vec<u32> = Vec::new();
        if spread {
            // One of each core, then the next of each.
            while cores.iter().any(|core| !core.is_empty()) {
                single.extend(cores.iter_mut().filter(|core| !core.is_empty()).map(|core| core.remove(0)));
            }
        } else {
            single = cores.concat();
        }
        single.truncate(self.needed);
        self.take(&single.into_iter().collect());
    }
}

/// How CPUs would be distributed over some nodes.
struct Distribution {
    balance: f64,
    nodes: Vec<u32>,
    /// Nodes that provide one more group, for the remainder.
    more: Vec<u32>,
}

/// As few nodes as can give equal shares, so that the remaining CPUs are as even as possible.
fn distribute(machine: &Machine, free: &CpuSet, wanted: usize, group: usize) -> Option<CpuSet> {
    let (node, socket): (TopologyLevel, TopologyLevel) = (|cpu| cpu.node, |cpu| cpu.socket);
    let levels = if machine.count(socket) >= machine.count(node) { vec![node] } else { vec![socket, node] };
    let pile = CpuAccumulator { machine, free: free.clone(), taken: CpuSet::default(), needed: wanted };
    let nodes = pile.order(free, &levels).into_iter().map(|(number, cpus)| (number, cpus.len()));
    let nodes: Vec<(u32, usize)> = nodes.collect();
    let groups_per_node = machine.cpus.len().div_ceil(group).div_ceil(machine.count(node).max(1)).max(1);
    let least = wanted.div_ceil(group).div_ceil(groups_per_node).max(1);
    let most = wanted.div_ceil(group).min(nodes.len());
    let share = (least..=most).find_map(|size| best_distribution(&nodes, size, wanted, group))?;
    Some(allocate_distribution(machine, free, wanted, group, &share))
}

fn best_distribution(nodes: &[(u32, usize)], size: usize, wanted: usize, group: usize) -> Option<Distribution> {
    let mut best: Option<Distribution> = None;
    for chosen in combinations(nodes, size) {
        let share = share(nodes, &chosen, wanted, group);
        if let Some(share) = share.filter(|share| best.as_ref().is_none_or(|best| share.balance < best.balance)) {
            best = Some(share);
        }
    }
    best
}

fn share(nodes: &[(u32, usize)], chosen: &[(u32, usize)], wanted: usize, group: usize) -> Option<Distribution> {
    let each = wanted / chosen.len() / group * group;
    let groups: usize = chosen.iter().map(|(_, free)| free / group).sum();
    if groups * group < wanted || chosen.iter().any(|(_, free)| *free < each) {
        return None;
    }
    let is_chosen = |node: u32| chosen.iter().any(|(known, _)| *known == node);
    let left: Vec<(u32, usize)> =
        nodes.iter().map(|(node, free)| (*node, if is_chosen(*node) { free - each } else { *free })).collect();
    let rest = wanted - each * chosen.len();
    let numbers: Vec<u32> = chosen.iter().map(|(node, _)| *node).collect();
    if rest == 0 {
        return Some(Distribution { balance: deviation(&left), nodes: numbers, more: Vec::new() });
    }
    let can_more: Vec<u32> =
        left.iter().filter(|(node, free)| is_chosen(*node) && *free >= group).map(|(node, _)| *node).collect();
    let mut best: Option<Distribution> = None;
    for size in (1..=can_more.len()).rev() {
        for more in combinations(&can_more, size) {
            let Some(after) = add_remainder(&left, &more, rest, group) else { continue };
            let balance = deviation(&after);
            if best.as_ref().is_none_or(|best| balance < best.balance) {
                best = Some(Distribution { balance, nodes: numbers.clone(), more });
            }
        }
    }
    best
}

/// The free CPUs after the remainder was taken from some nodes, one group of each in turn.
fn add_remainder(left: &[(u32, usize)], more: &[u32], mut rest: usize, group: usize) -> Option<Vec<(u32, usize)>> {
    let mut left = left.to_vec();
    while rest > 0 {
        let before = rest;
        for (_, free) in left.iter_mut().filter(|(node, free)| more.contains(node) && *free >= group) {
            if rest > 0 {
                *free -= group;
                rest -= group;
            }
        }
        if rest == before {
            return None;
        }
    }
    Some(left)
}

fn deviation(left: &[(u32, usize)]) -> f64 {
    let count = left.len().max(1) as f64;
    let mean = left.iter().map(|(_, free)| *free as f64).sum::<f64>() / count;
    (left.iter().map(|(_, free)| (*free as f64 - mean).powi(2)).sum::<f64>() / count).sqrt()
}

fn allocate_distribution(
    machine: &Machine,
    free: &CpuSet,
    wanted: usize,
    group: usize,
    share: &Distribution,
) -> CpuSet {
    let mut taken = CpuSet::default();
    let mut give = |node: u32, count: usize| {
        let there = machine.within(&free.without(&taken), |cpu| cpu.node, &[node]);
        let given = pack(machine, &there, count.min(there.len()), AllocationStrategy::default());
        taken = taken.with(&given);
        given.len()
    };
    let each = wanted / share.nodes.len() / group * group;
    let mut left = wanted;
    for node in &share.nodes {
        left -= give(*node, each);
    }
    let mut more = share.more.iter().cycle();
    // Without a node that has more, nothing is left: the share guarantees it.
    while let Some(node) = more.next().filter(|_| left > 0) {
        left -= give(*node, group.min(left));
    }
    taken
}
