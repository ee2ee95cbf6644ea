//! Topology-aware hints: each zone gets a share of the endpoints in proportion to its CPU. Endpoints of the own zone
//! come first; zones with too many give endpoints to zones with too few. Slices whose hints still fit are not
//! changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::Quantity;
use api::{Str, Tree, list, tree};
use client::Key;
use thiserror::Error;

use crate::support::conditions;
use crate::support::slices::{Changes, writable};

/// How far an endpoint may exceed its share of the load.
const OVERLOAD: f64 = 0.2;
const ZONE: &str = "topology.kubernetes.io/zone";
const ROLES_LEFT_OUT: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The relevant properties of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeTopology {
    /// May be empty.
    pub zone: Str,
    /// Allocatable milli-CPU; None if the node does not count.
    cpu: Option<i64>,
}

pub(crate) type NodeTopologies = BTreeMap<Key, NodeTopology>;

impl NodeTopology {
    pub(super) fn of(node: &Tree) -> NodeTopology {
        let labels = node.map("metadata.labels");
        let counts = conditions::is_true(node, "Ready") && !ROLES_LEFT_OUT.iter().any(|role| labels.contains(role));
        let cpu = || Quantity::parse(node.str("status.allocatable.cpu")).map_or(0, |cpu| cpu.milli_value());
        NodeTopology { zone: Str::from(labels.str(ZONE)), cpu: counts.then(cpu) }
    }

    #[cfg(test)]
    pub(super) fn new(zone: &str, cpu: Option<i64>) -> NodeTopology {
        NodeTopology { zone: Str::from(zone), cpu }
    }
}

/// The fraction of the CPU in each zone; None if unknown, or with fewer than two zones.
pub(crate) type ZoneShares = BTreeMap<Str, f64>;

pub(super) fn shares(topologies: &NodeTopologies) -> Option<ZoneShares> {
    let mut zones: BTreeMap<Str, i64> = BTreeMap::new();
    for place in topologies.values() {
        let Some(cpu) = place.cpu else { continue };
        if place.zone.is_empty() || cpu == 0 {
            return None;
        }
        *zones.entry(place.zone.clone()).or_default() += cpu;
    }
    let total = zones.values().sum::<i64>() as f64;
    (zones.len() > 1).then(|| zones.into_iter().map(|(zone, cpu)| (zone, cpu as f64 / total)).collect())
}

/// The number of endpoints for each zone.
pub(super) type Counts = BTreeMap<Str, usize>;

/// Why endpoints get no hints.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum HintError {
    #[error("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")]
    NodeInformation,
    #[error("Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")]
    TooFewEndpoints { endpoints: usize, zones: usize },
    #[error(
        "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
         ({endpoints} endpoints, {zones} zones)"
    )]
    Overload { endpoints: usize, zones: usize },
    #[error("One or more endpoints do not have a zone specified")]
    NoZone,
}

/// The result of computing the hints of one IP family.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HintResult {
    Yes(Counts),
    No(HintError),
}

impl HintResult {
    /// Whether node changes require new hints.
    pub(crate) fn is_outdated(&self, shares: Option<&ZoneShares>) -> bool {
        match (self, shares) {
            (HintResult::Yes(counts), Some(shares)) => is_overloaded(counts, shares),
            (HintResult::Yes(_), None) | (HintResult::No(_), Some(_)) => true,
            (HintResult::No(_), None) => false,
        }
    }
}

fn is_overloaded(counts: &Counts, shares: &ZoneShares) -> bool {
    let total: usize = counts.values().sum();
    shares.iter().any(|(zone, share)| counts.get(zone).is_none_or(|count| *count < min_endpoints(share * total as f64)))
}

fn min_endpoints(desired: f64) -> usize {
    (desired / (1.0 + OVERLOAD)).ceil() as usize
}

/// Sets the hints of one IP family, or removes them all. `unchanged` are slices that are not written otherwise.
pub(super) fn hint(changes: &mut Changes, unchanged: &[Arc<Tree>], shares: Option<&ZoneShares>) -> HintResult {
    let all =
        || changes.create.iter().chain(&changes.update).chain(unchanged.iter().map(AsRef::as_ref)).flat_map(ready);
    let is_placed = |endpoint: &Tree| !endpoint.str("zone").is_empty();
    let allocations = allocate(all().count(), shares).and_then(|allocations| match all().all(is_placed) {
        true => Ok(allocations),
        false => Err(HintError::NoZone),
    });
    match allocations {
        Ok(allocations) => spread(changes, unchanged, &allocations),
        Err(why) => {
            remove_hints(changes, unchanged);
            HintResult::No(why)
        }
    }
}

/// The number of endpoints a zone should have.
struct ZoneAllocation {
    most: usize,
    desired: f64,
}

fn allocate(total: usize, shares: Option<&ZoneShares>) -> Result<BTreeMap<Str, ZoneAllocation>, HintError> {
    let Some(shares) = shares else {
        return Err(HintError::NodeInformation);
    };
    let (endpoints, zones) = (total, shares.len());
    if zones > endpoints {
        return Err(HintError::TooFewEndpoints { endpoints, zones });
    }
    let desired = shares.iter().map(|(zone, share)| (zone.clone(), share * total as f64));
    let desired: BTreeMap<Str, f64> = desired.collect();
    let needed: usize = desired.values().copied().map(min_endpoints).sum();
    let Some(spare) = total.checked_sub(needed) else {
        return Err(HintError::Overload { endpoints, zones });
    };
    let allocations = |desired: f64| ZoneAllocation {
        most: min_endpoints(desired) + spare,
        desired: desired.max(min_endpoints(desired) as f64),
    };
    Ok(desired.into_iter().map(|(zone, desired)| (zone, allocations(desired))).collect())
}

fn spread(changes: &mut Changes, unchanged: &[Arc<Tree>], allocations: &BTreeMap<Str, ZoneAllocation>) -> HintResult {
    let mut counts = Counts::new();
    for slice in unchanged {
        match valid_hints(slice, &counts, allocations) {
            Some(more) => more.into_iter().for_each(|(zone, more)| *counts.entry(zone).or_default() += more),
            None => changes.update.push(writable(slice)),
        }
    }
    for_each_endpoint(changes, |endpoint| match is_ready(endpoint) {
        false => drop(endpoint.remove("hints")),
        true => {
            let zone = Str::from(endpoint.str("zone"));
            set_hint(endpoint, &zone);
            *counts.entry(zone).or_default() += 1;
        }
    });
    let (mut giving, mut receiving) = givers_and_receivers(&counts, allocations);
    for_each_endpoint(changes, |endpoint| {
        let zone = Str::from(endpoint.str("zone"));
        if is_ready(endpoint)
            && giving.contains_key(&zone)
            && let Some(to) = receiving.keys().next().cloned()
        {
            set_hint(endpoint, &to);
            decrement(&mut giving, &zone);
            decrement(&mut receiving, &to);
            decrement(&mut counts, &zone);
            *counts.entry(to).or_default() += 1;
        }
    });
    HintResult::Yes(counts)
}

/// The hints of a slice that may stay unchanged: each ready endpoint has hints for known zones, and no zone gets more
/// than its share.
fn valid_hints(slice: &Tree, counts: &Counts, allocations: &BTreeMap<Str, ZoneAllocation>) -> Option<Counts> {
    let mut found = Counts::new();
    for endpoint in ready(slice) {
        let zones = endpoint.list("hints.forZones");
        if zones.is_empty() {
            return None;
        }
        zones.iter().for_each(|zone| *found.entry(Str::from(zone.str("name"))).or_default() += 1);
    }
    let has_room = |(zone, more): (&Str, &usize)| {
        allocations.get(zone).is_some_and(|allocations| more + counts.get(zone).unwrap_or(&0) <= allocations.most)
    };
    found.iter().all(has_room).then_some(found)
}

/// The whole endpoints that each zone gives and receives.
fn givers_and_receivers(counts: &Counts, allocations: &BTreeMap<Str, ZoneAllocation>) -> (Counts, Counts) {
    let (mut over, mut under) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocations) in allocations {
        let more = counts.get(zone).copied().unwrap_or(0) as f64 - allocations.desired;
        match more > 0.0 {
            true => over.insert(zone.clone(), more),
            false => under.insert(zone.clone(), -more),
        };
    }
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    while let (Some((from, over)), Some((to, under))) = (most_needed(&mut over), most_needed(&mut under)) {
        // Less than half an endpoint is not worth a move, nor one where neither side has a whole endpoint.
        if over.min(*under) < 0.5 || over.max(*under) < 1.0 {
            break;
        }
        (*over, *under) = (*over - 1.0, *under - 1.0);
        *giving.entry(from).or_default() += 1;
        *receiving.entry(to).or_default() += 1;
    }
    (giving, receiving)
}

/// Of equal zones the first by name.
fn most_needed(zones: &mut BTreeMap<Str, f64>) -> Option<(Str, &mut f64)> {
    let greatest = zones.iter_mut().rev().max_by(|(_, one), (_, other)| one.total_cmp(other));
    greatest.map(|(zone, count)| (zone.clone(), count))
}

fn decrement(counts: &mut Counts, zone: &Str) {
    if let Some(count) = counts.get_mut(zone) {
        *count -= 1;
        if *count == 0 {
            counts.remove(zone);
        }
    }
}

fn remove_hints(changes: &mut Changes, unchanged: &[Arc<Tree>]) {
    let has_hints = |slice: &&Arc<Tree>| slice.list("endpoints").iter().any(|endpoint| endpoint.has("hints"));
    changes.update.extend(unchanged.iter().filter(has_hints).map(|slice| writable(slice)));
    for_each_endpoint(changes, |endpoint| drop(endpoint.remove("hints")));
}

fn for_each_endpoint(changes: &mut Changes, act: impl FnMut(&mut Tree)) {
    let slices = changes.create.iter_mut().chain(&mut changes.update);
    slices.flat_map(|slice| slice.list_mut("endpoints")).for_each(act);
}

fn ready(slice: &Tree) -> impl Iterator<Item = &Tree> {
    slice.list("endpoints").iter().filter(|endpoint| is_ready(endpoint))
}

fn is_ready(endpoint: &Tree) -> bool {
    endpoint.bool("conditions.ready")
}

fn set_hint(endpoint: &mut Tree, zone: &str) {
    endpoint.set("hints", tree! { "forZones" => list![tree! { "name" => zone }] });
}

#[cfg(test)]
mod tests;
