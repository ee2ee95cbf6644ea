//! Memory of NUMA nodes for containers of Guaranteed pods. Pure: the assignments are a value, from which the free
//! memory follows.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::{Format, Quantity};
use api::{Tree, tree};

use super::machine::{Machine, Node};
use super::numa::{Hint, Hints, Mask, hints};
use super::{Rejection, requests};
use crate::model::pod;

const MEMORY: &str = "memory";

/// Amounts by kind: `memory`, `hugepages-2Mi`.
pub(crate) type Amounts = BTreeMap<String, u64>;

/// So much of a kind, of these nodes together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) nodes: Mask,
    pub(crate) kind: String,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryAllocation {
    pub(crate) container: String,
    /// Whether the container completes before later ones start: they use its memory again.
    is_passing: bool,
    pub(crate) blocks: Vec<Block>,
}

/// Allocations by pod; containers in the order in which they start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State(pub(crate) BTreeMap<String, Vec<MemoryAllocation>>);

/// The static policy.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// The allocatable amounts of each node.
    pub(crate) allocatable: BTreeMap<u32, Amounts>,
    total: BTreeMap<u32, Amounts>,
}

/// A static policy that the machine or the configuration does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the reserved memory configuration references a NUMA node {0} that does not exist on this machine")]
    NoSuchNode(u32),
    #[error("[memorymanager] you should specify the system reserved memory")]
    NoneReserved,
    #[error(
        "the total amount {:?} of type {kind:?} is not equal to the value {:?} determined by Node Allocatable feature",
        shown_bytes(*.sum), shown_bytes(*.kept)
    )]
    Sum { kind: String, sum: u64, kept: u64 },
}

/// A checkpoint that does not fit the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StateError {
    #[error("[memorymanager] the expected machine state is different from the real one")]
    OtherMachine,
    #[error("{0:?} is no size")]
    Size(String),
}

/// A container that cannot have its memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")]
    NotEnough,
    #[error("[memorymanager] failed to find the default preferred hint")]
    NotPreferred,
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    OtherGroup,
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NotExtended,
    #[error("[memorymanager] failed to find the extended preferred hint")]
    ExtendedNotPreferred,
}

fn shown_bytes(bytes: u64) -> String {
    Quantity::new(i64::try_from(bytes).unwrap_or(i64::MAX), Format::BinarySI).to_string()
}

/// A node at a time.
#[derive(Debug, Clone)]
struct NodeMemory {
    /// The nodes that this node allocates together with: itself alone, or one group at a time.
    group: Mask,
    uses: usize,
    free: Amounts,
}

type NumaNodeMap = BTreeMap<u32, NodeMemory>;

impl Policy {
    /// `reserved` by node; the sum must be the amount that is reserved from pods in total.
    pub(crate) fn new(
        machine: &Arc<Machine>,
        reserved: &BTreeMap<u32, Amounts>,
        kept: u64,
    ) -> Result<Policy, PolicyError> {
        if let Some(strange) = reserved.keys().find(|node| !machine.nodes.contains_key(node)) {
            return Err(PolicyError::NoSuchNode(*strange));
        }
        check_sums(reserved, kept)?;
        let total: BTreeMap<u32, Amounts> = machine.nodes.iter().map(|(number, node)| (*number, total(node))).collect();
        let mut allocatable = total.clone();
        for (number, amounts) in &mut allocatable {
            let pages: u64 = amounts.iter().filter(|(kind, _)| *kind != MEMORY).map(|(_, bytes)| *bytes).sum();
            for (kind, bytes) in amounts.iter_mut() {
                let kept = reserved.get(number).and_then(|reserved| reserved.get(kind)).copied().unwrap_or(0);
                let pages = if kind == MEMORY { pages } else { 0 };
                *bytes = bytes.saturating_sub(kept).saturating_sub(pages);
            }
        }
        Ok(Policy { allocatable, total })
    }

    fn cells(&self, state: &State) -> NumaNodeMap {
        let cell = |(number, free): (&u32, &Amounts)| {
            (*number, NodeMemory { group: Mask::from_iter([*number]), uses: 0, free: free.clone() })
        };
        let mut cells: NumaNodeMap = self.allocatable.iter().map(cell).collect();
        for shares in state.0.values() {
            for block in shares.iter().flat_map(|share| &share.blocks) {
                for cell in block
                    .nodes
                    .bits()
                    .filter_map(|node| cells.remove(&node).map(|cell| (node, cell)))
                    .collect::<Vec<_>>()
                {
                    let (node, cell) = cell;
                    cells.insert(node, NodeMemory { group: block.nodes, uses: cell.uses + 1, ..cell });
                }
            }
            for (nodes, kind, bytes) in charged(shares) {
                charge(&mut cells, nodes, &kind, bytes);
            }
        }
        cells
    }

    /// Checks that the restored state fits this machine.
    pub(crate) fn check(&self, kept: &Tree, state: &State) -> Result<(), StateError> {
        if *kept != shown_nodes(&self.total, &self.allocatable) {
            return Err(StateError::OtherMachine);
        }
        let blocks = state.0.values().flatten().flat_map(|share| &share.blocks);
        let is_known = |block: &Block| {
            block.nodes.bits().all(|node| self.total.get(&node).is_some_and(|kinds| kinds.contains_key(&block.kind)))
        };
        if blocks.into_iter().all(is_known) { Ok(()) } else { Err(StateError::OtherMachine) }
    }

    pub(crate) fn hints(&self, state: &State, pod: &Tree, spec: &Tree) -> Hints {
        let wanted = requests::memory(pod, spec);
        match state.of(pod::uid(pod), spec.str("name")) {
            Some(blocks) => again(blocks, &wanted),
            None => self.hints_for(state, pod, &wanted),
        }
    }

    /// For the pod as a whole.
    pub(crate) fn pod_hints(&self, state: &State, pod: &Tree) -> Hints {
        let wanted = requests::at_once_by_name(pod, |spec| requests::memory(pod, spec));
        let has = requests::containers(pod).find_map(|spec| state.of(pod::uid(pod), spec.str("name")));
        match has {
            Some(blocks) => again(blocks, &wanted),
            None => self.hints_for(state, pod, &wanted),
        }
    }

    fn hints_for(&self, state: &State, pod: &Tree, wanted: &Amounts) -> Hints {
        let hints = self.places(state, pod, wanted);
        wanted.keys().map(|kind| (kind.clone(), Some(hints.clone()))).collect()
    }

    /// Hints for nodes that have all requested kinds; they are the same for each kind.
    fn places(&self, state: &State, pod: &Tree, wanted: &Amounts) -> Vec<Hint> {
        let cells = self.cells(state);
        let numbers: Vec<u32> = cells.keys().copied().collect();
        let holds = |mask: Mask| {
            let all =
                |kind: &String| mask.bits().filter_map(|node| self.allocatable.get(&node)?.get(kind)).sum::<u64>();
            wanted.iter().all(|(kind, bytes)| all(kind) >= *bytes)
        };
        let fits = |mask: Mask| {
            let enough =
                |kind: &String, bytes: u64| free(&cells, mask, kind) + state.reusable(pod, mask, kind) >= bytes;
            holds(mask) && may_group(&cells, mask) && wanted.iter().all(|(kind, bytes)| enough(kind, *bytes))
        };
        hints(&numbers, holds, fits)
    }

    /// Assigns a container its memory; nothing happens if it has it already, or requests none.
    pub(crate) fn allocate(&self, state: &mut State, pod: &Tree, spec: &Tree, near: Hint) -> Result<(), Rejection> {
        let (uid, name) = (pod::uid(pod), spec.str("name"));
        let wanted = requests::memory(pod, spec);
        if wanted.is_empty() || state.of(uid, name).is_some() {
            return Ok(());
        }
        let nodes = self.choose(state, pod, &wanted, near).map_err(|error| Rejection::Unexpected(error.into()))?;
        let block = |(kind, bytes): (String, u64)| Block { nodes, kind, bytes };
        let share = MemoryAllocation {
            container: name.to_string(),
            is_passing: requests::is_passing(pod, spec),
            blocks: wanted.into_iter().map(block).collect(),
        };
        state.0.entry(uid.to_string()).or_default().push(share);
        Ok(())
    }

    fn choose(&self, state: &State, pod: &Tree, wanted: &Amounts, near: Hint) -> Result<Mask, MemoryError> {
        let places = self.places(state, pod, wanted);
        let mut chosen = near;
        if near.affinity.is_none() {
            chosen = best(&places).ok_or(MemoryError::NotEnough)?;
            if !chosen.preferred && near.preferred {
                return Err(MemoryError::NotPreferred);
            }
        }
        let cells = self.cells(state);
        let mask = chosen.affinity.unwrap_or_default();
        if wanted.iter().all(|(kind, bytes)| free(&cells, mask, kind) + state.reusable(pod, mask, kind) >= *bytes) {
            let is_single = mask.count() == 1;
            let violates = !is_single && !may_group(&cells, mask);
            return if violates { Err(MemoryError::OtherGroup) } else { Ok(mask) };
        }
        // The merged hint has too little memory: choose more nodes that include it.
        let larger: Vec<Hint> =
            places.into_iter().filter(|hint| hint.affinity.is_some_and(|place| place.contains(mask))).collect();
        let larger = best(&larger).ok_or(MemoryError::NotExtended)?;
        if !larger.preferred && chosen.preferred {
            return Err(MemoryError::ExtendedNotPreferred);
        }
        Ok(larger.affinity.unwrap_or_default())
    }

    pub(crate) fn to_checkpoint(&self, state: &State) -> Tree {
        let mut entries = tree! {};
        for (uid, shares) in &state.0 {
            entries.set(uid, Tree::List(shares.iter().map(shown_share).collect()));
        }
        let nodes = shown_nodes(&self.total, &self.allocatable);
        tree! { "policyName" => "Static", "machineState" => nodes, "entries" => entries }
    }
}

fn check_sums(reserved: &BTreeMap<u32, Amounts>, kept: u64) -> Result<(), PolicyError> {
    let mut sums = Amounts::from([(MEMORY.to_string(), 0)]);
    for (kind, bytes) in reserved.values().flatten() {
        *sums.entry(kind.clone()).or_default() += bytes;
    }
    if sums[MEMORY] == 0 {
        return Err(PolicyError::NoneReserved);
    }
    for (kind, sum) in sums {
        let kept = if kind == MEMORY { kept } else { 0 };
        if sum != kept {
            return Err(PolicyError::Sum { kind, sum, kept });
        }
    }
    Ok(())
}

fn total(node: &Node) -> Amounts {
    let pages = node.huge_pages.iter().map(|(size, count)| {
        let size_shown = Quantity::new(i64::try_from(*size).unwrap_or(0), Format::BinarySI);
        (format!("hugepages-{size_shown}"), size * count)
    });
    pages.chain([(MEMORY.to_string(), node.memory_bytes)]).collect()
}

/// The amounts that a pod is charged for: containers use the memory of completed init containers again.
fn charged(shares: &[MemoryAllocation]) -> Vec<(Mask, String, u64)> {
    walk(shares).into_iter().map(|((nodes, kind), (charged, _))| (nodes, kind, charged)).collect()
}

/// By nodes and kind: the charged amount, and how much of it the next containers can use again.
fn walk(shares: &[MemoryAllocation]) -> BTreeMap<(Mask, String), (u64, u64)> {
    let mut taken: BTreeMap<(Mask, String), (u64, u64)> = BTreeMap::new();
    for share in shares {
        for block in &share.blocks {
            let (charged, reusable) = taken.entry((block.nodes, block.kind.clone())).or_default();
            *charged += block.bytes.saturating_sub(*reusable);
            *reusable = match share.is_passing {
                true => (*reusable).max(block.bytes),
                false => reusable.saturating_sub(block.bytes),
            };
        }
    }
    taken
}

fn charge(cells: &mut NumaNodeMap, nodes: Mask, kind: &str, mut bytes: u64) {
    for node in nodes.bits() {
        let Some(free) = cells.get_mut(&node).and_then(|cell| cell.free.get_mut(kind)) else { continue };
        let part = bytes.min(*free);
        *free -= part;
        bytes -= part;
    }
}

fn free(cells: &NumaNodeMap, mask: Mask, kind: &str) -> u64 {
    mask.bits().filter_map(|node| cells.get(&node)?.free.get(kind)).sum()
}

/// A node allocates alone or together with one group of nodes, never both.
fn may_group(cells: &NumaNodeMap, mask: Mask) -> bool {
    mask.bits().filter_map(|node| cells.get(&node)).all(|cell| match mask.count() {
        1 => cell.group.count() == 1,
        _ => cell.uses == 0 || cell.group == mask,
    })
}

/// Hints for the nodes that the container has already.
fn again(blocks: &[Block], wanted: &Amounts) -> Hints {
    let same = blocks.len() == wanted.len() && blocks.iter().all(|block| wanted.get(&block.kind) == Some(&block.bytes));
    if !same {
        return Hints::new();
    }
    let hint = |block: &Block| Some(vec![Hint { affinity: Some(block.nodes), preferred: true }]);
    blocks.iter().map(|block| (block.kind.clone(), hint(block))).collect()
}

fn best(places: &[Hint]) -> Option<Hint> {
    let mut best: Option<Hint> = None;
    for hint in places {
        let is_better = |best: &Hint| {
            let narrower = || hint.affinity.zip(best.affinity).is_some_and(|(new, old)| new.is_narrower_than(old));
            hint.preferred && !best.preferred || hint.preferred == best.preferred && narrower()
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some(*hint);
        }
    }
    best
}

impl State {
    pub(crate) fn of(&self, uid: &str, container: &str) -> Option<&[Block]> {
        let share = self.0.get(uid)?.iter().find(|share| share.container == container)?;
        Some(&share.blocks)
    }

    fn reusable(&self, pod: &Tree, nodes: Mask, kind: &str) -> u64 {
        let shares = self.0.get(pod::uid(pod)).map(Vec::as_slice).unwrap_or_default();
        walk(shares).get(&(nodes, kind.to_string())).map_or(0, |(_, reusable)| *reusable)
    }

    /// The nodes of a container's memory.
    pub(crate) fn nodes(&self, uid: &str, container: &str) -> Mask {
        self.of(uid, container).into_iter().flatten().flat_map(|block| block.nodes.bits()).collect()
    }

    pub(crate) fn release(&mut self, uid: &str) -> bool {
        self.0.remove(uid).is_some()
    }

    pub(crate) fn read(tree: &Tree) -> Result<State, StateError> {
        let pods = tree.map("entries").iter();
        let pods = pods.map(|(uid, shares)| {
            let shares = shares.as_list().unwrap_or_default().iter().map(read_share);
            Ok((uid.to_string(), shares.collect::<Result<_, StateError>>()?))
        });
        Ok(State(pods.collect::<Result<_, StateError>>()?))
    }
}

fn shown_nodes(total: &BTreeMap<u32, Amounts>, allocatable: &BTreeMap<u32, Amounts>) -> Tree {
    let mut nodes = tree! {};
    for (number, kinds) in total {
        for (kind, bytes) in kinds {
            let left = allocatable.get(number).and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0);
            let shown = tree! { "total" => bytes.to_string(), "allocatable" => left.to_string() };
            nodes.child(&number.to_string()).set(kind, shown);
        }
    }
    nodes
}

fn shown_share(share: &MemoryAllocation) -> Tree {
    let block = |block: &Block| {
        let nodes: Vec<Tree> = block.nodes.bits().map(|node| Tree::Int(node.into())).collect();
        tree! { "numaAffinity" => nodes, "type" => block.kind.as_str(), "size" => block.bytes.to_string() }
    };
    let blocks: Vec<Tree> = share.blocks.iter().map(block).collect();
    tree! { "container" => share.container.as_str(), "init" => share.is_passing, "blocks" => blocks }
}

fn read_share(tree: &Tree) -> Result<MemoryAllocation, StateError> {
    let block = |block: &Tree| {
        let nodes = block.list("numaAffinity").iter().filter_map(|node| u32::try_from(node.as_int()?).ok());
        let bytes = block.str("size").parse().map_err(|_| StateError::Size(block.str("size").to_string()))?;
        Ok(Block { nodes: nodes.collect(), kind: block.str("type").to_string(), bytes })
    };
    Ok(MemoryAllocation {
        container: tree.str("container").to_string(),
        is_passing: tree.bool("init"),
        blocks: tree.list("blocks").iter().map(block).collect::<Result<_, StateError>>()?,
    })
}
