//! The pools that have devices for a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Str;
use podmodel::Node;

use crate::counters::{Counters, InvalidCounters};
use crate::{Inventory, PoolId, ResourceSlice};

/// Whether devices of a pool can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolState {
    Usable,
    /// Its driver has not published all slices yet.
    Incomplete,
    /// Its slices contradict each other.
    Invalid,
}

/// A pool, as one node sees it.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    pub(crate) state: PoolState,
    /// The slices with devices for the node, by name.
    pub(crate) slices: Vec<Arc<ResourceSlice>>,
    /// The other slices of the pool, whose devices consume the same counters.
    pub(crate) others: Vec<Arc<ResourceSlice>>,
    pub(crate) counters: Counters,
}

impl Pool {
    fn unusable(id: PoolId, state: PoolState) -> Pool {
        Pool { id, state, slices: Vec::new(), others: Vec::new(), counters: Counters::default() }
    }

    fn has_binding_conditions(&self) -> bool {
        self.slices.iter().flat_map(|slice| &slice.devices).any(|device| !device.binding_conditions.is_empty())
    }
}

/// The pools with devices for a node, in the order in which they are used: by name, and those whose devices have to be
/// attached first last.
pub(crate) fn gather(inventory: &Inventory, node: &Node) -> Vec<Pool> {
    let mut relevant: BTreeMap<PoolId, Vec<Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in inventory.slices_for(&node.name).filter(|slice| slice.is_relevant(node)) {
        let known = relevant.entry(slice.pool_id()).or_default();
        match known.first().map(|first| slice.generation.cmp(&first.generation)) {
            Some(std::cmp::Ordering::Less) => {}
            Some(std::cmp::Ordering::Greater) => *known = vec![slice.clone()],
            Some(std::cmp::Ordering::Equal) | None => known.push(slice.clone()),
        }
    }
    let pools = relevant.into_iter().filter_map(|(id, slices)| build(inventory, id, slices));
    let (last, mut first): (Vec<Pool>, Vec<Pool>) = pools.partition(Pool::has_binding_conditions);
    first.extend(last);
    first
}

/// None if the driver has begun to replace the pool by a newer generation.
fn build(inventory: &Inventory, id: PoolId, mut slices: Vec<Arc<ResourceSlice>>) -> Option<Pool> {
    let (generation, count) = slices.first().map(|slice| (slice.generation, slice.slice_count))?;
    let is_complete = |count_found: usize| i64::try_from(count_found) == Ok(count);
    let mut others = Vec::new();
    if !is_complete(slices.len()) {
        let all: Vec<&Arc<ResourceSlice>> = inventory.slices_of(&id).collect();
        if all.iter().any(|slice| slice.generation > generation) {
            return None;
        }
        let current = all.into_iter().filter(|slice| slice.generation == generation);
        let known: BTreeSet<&Str> = slices.iter().map(|slice| &slice.name).collect();
        others = current.filter(|slice| !known.contains(&slice.name)).cloned().collect();
        if !is_complete(slices.len() + others.len()) {
            return Some(Pool::unusable(id, PoolState::Incomplete));
        }
    }
    slices.sort_by(|one, other| one.name.cmp(&other.name));
    Some(match validate(&slices, &others) {
        Ok(counters) => {
            let is_device_slice = |slice: &Arc<ResourceSlice>| slice.counters.is_empty();
            slices.retain(is_device_slice);
            others.retain(is_device_slice);
            Pool { id, state: PoolState::Usable, slices, others, counters }
        }
        Err(InvalidCounters) => Pool::unusable(id, PoolState::Invalid),
    })
}

/// The counters of a pool whose devices have different names and consume counters that there are.
fn validate(slices: &[Arc<ResourceSlice>], others: &[Arc<ResourceSlice>]) -> Result<Counters, InvalidCounters> {
    let mut names = BTreeSet::new();
    if !slices.iter().flat_map(|slice| &slice.devices).all(|device| names.insert(&device.name)) {
        return Err(InvalidCounters);
    }
    let all = || slices.iter().chain(others).map(|slice| &**slice);
    let counters = Counters::of(all())?;
    let is_valid = all().flat_map(|slice| &slice.devices).all(|device| counters.has_all(device));
    if is_valid { Ok(counters) } else { Err(InvalidCounters) }
}
