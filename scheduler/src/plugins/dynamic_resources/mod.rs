//! Allocates devices to the claims of a pod, and to its extended resources that device classes provide. Allocations are
//! reserved until they are written and observed.

mod claims;
mod pending;
mod shell;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use client::Random;
use devices::{
    Allocated, AllocatedState, AllocationError, Allocator, Claim, ClaimAllocation, ExtendedRequests, Inventory,
    Selectors, is_ready_for_binding,
};
use stdx::sync::Mutex;

use crate::framework::{
    Cycle, Event, Handle, Plugin, PluginFuture, Point, PostFilter, PostFilterInput, PreFilter, PreScore, Rejection,
    Slot, Verdict, normalize_by_largest,
};
use crate::snapshot::{Kind, NodeId, NodeState, Snapshot};
use podmodel::Pod;

use claims::PodClaims;
pub(crate) use pending::PendingAllocations;
use pending::{Reservation, ReservedClaim};

/// The most alternatives of a request: the first one gets the best score.
const MAX_ALTERNATIVES: usize = 8;

/// How long a pod waits for its devices to be attached.
pub(crate) const BINDING_TIMEOUT: Duration = Duration::from_secs(600);

/// Shared by the plugins of all profiles: a device is allocated once.
#[derive(Default)]
pub(crate) struct DeviceState {
    pub(crate) pending: Mutex<PendingAllocations>,
    selectors: Selectors,
    /// For the identifiers of shares, which only have to be different.
    random: Option<Random>,
}

impl DeviceState {
    pub(crate) fn new() -> DeviceState {
        DeviceState { random: Some(Random::seeded(Random::fresh_seed())), ..DeviceState::default() }
    }

    /// A random UUID.
    fn share_id(&self) -> Str {
        let next = || self.random.as_ref().map_or(0, Random::next);
        let (high, low) = (next(), next());
        let (version, variant) = ((high & 0x0fff) | 0x4000, ((low >> 48) & 0x3fff) | 0x8000);
        let text = format!(
            "{:08x}-{:04x}-{version:04x}-{variant:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            low & 0xffff_ffff_ffff
        );
        Str::from(text)
    }
}

pub(crate) struct DynamicResources {
    state: Arc<DeviceState>,
    binding_timeout: Duration,
}

impl DynamicResources {
    pub(crate) fn new(state: Arc<DeviceState>, binding_timeout: Duration) -> DynamicResources {
        DynamicResources { state, binding_timeout }
    }
}

/// What the filter found for one node.
#[derive(Clone)]
struct NodeAllocation {
    allocations: Vec<ClaimAllocation>,
    extended: ExtendedRequests,
}

/// The state of a cycle.
struct CycleState {
    claims: PodClaims,
    inventory: Arc<Inventory>,
    allocated: Arc<AllocatedState>,
    pending: AllocatedState,
    shared: Arc<DeviceState>,
    found: Mutex<HashMap<NodeId, NodeAllocation>>,
    /// The allocated claims that are not available on some node.
    unavailable: Mutex<Vec<Arc<Claim>>>,
}

type SharedState = Arc<CycleState>;

impl CycleState {
    fn check(&self, cycle: Cycle, node: &NodeState) -> Verdict {
        if self.claims.has_stale_extended_claim() {
            return Err(Rejection::unresolvable("cannot schedule extended resource claim"));
        }
        let extended = self.claims.extended_requests(cycle.pod, &node.node, &self.inventory);
        let unavailable = self.claims.allocated.iter().filter(|claim| !is_available(claim, node));
        let unavailable: Vec<Arc<Claim>> = unavailable.cloned().collect();
        let mut to_allocate = self.claims.unallocated.clone();
        to_allocate.extend(self.claims.extended_claim(&extended));
        let found = if to_allocate.is_empty() { Vec::new() } else { self.allocate(node, &to_allocate)? };
        if !unavailable.is_empty() {
            let mut all = self.unavailable.lock();
            let is_new = |claim: &Arc<Claim>| !all.iter().any(|known| known.key == claim.key);
            let new: Vec<Arc<Claim>> = unavailable.into_iter().filter(is_new).collect();
            all.extend(new);
            return Err(Rejection::unresolvable("resourceclaim not available on the node"));
        }
        self.found.lock().insert(node.id, NodeAllocation { allocations: found, extended });
        Ok(())
    }

    fn allocate(&self, node: &NodeState, claims: &[Arc<Claim>]) -> Result<Vec<ClaimAllocation>, Rejection> {
        let allocator = Allocator {
            inventory: &self.inventory,
            allocated: Allocated { claims: &self.allocated, pending: &self.pending },
            selectors: &self.shared.selectors,
        };
        match allocator.allocate(&node.node, claims) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(Rejection::unresolvable("cannot allocate all claims")),
            Err(error @ AllocationError::InvalidPools) => Err(Rejection::unresolvable(error.to_string())),
            Err(error) => Err(Rejection::error(error.to_string())),
        }
    }

    /// The sum over all requests with alternatives: more for earlier ones.
    fn score(&self, node: NodeId) -> i64 {
        let found = self.found.lock();
        let Some(found) = found.get(&node) else { return 0 };
        let rate = |(claim, allocation): (&Arc<Claim>, &ClaimAllocation)| -> usize {
            let lists = claim.requests.iter().zip(&allocation.alternatives).filter(|(request, _)| request.is_list);
            lists.map(|(_, chosen)| MAX_ALTERNATIVES.saturating_sub(*chosen)).sum()
        };
        let total: usize = self.claims.unallocated.iter().zip(&found.allocations).map(rate).sum();
        i64::try_from(total).unwrap_or(i64::MAX)
    }
}

/// Whether an allocated claim can be used on a node. One whose devices could not be attached is no use anywhere.
fn is_available(claim: &Claim, node: &NodeState) -> bool {
    let nodes = claim.allocation.as_ref().and_then(|allocation| allocation.nodes.as_ref());
    nodes.is_none_or(|nodes| nodes.matches(&node.node.name, &node.node.labels)) && is_ready_for_binding(claim).is_ok()
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn points(&self) -> &'static [Point] {
        use Point::{Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, Reserve, Score};
        &[PreEnqueue, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, PreBind]
    }

    /// A pod waits outside the active queue until its claims exist.
    fn pre_enqueue(&self, snapshot: &Snapshot, pod: &Pod) -> Verdict {
        claims::of_pod(&snapshot.devices, pod).map(drop).map_err(|error| Rejection::unresolvable(error.to_string()))
    }

    fn pre_filter(&self, cycle: Cycle) -> PreFilter {
        let has_extended = claims::wants_extended(cycle.pod, &cycle.snapshot.devices.inventory);
        if cycle.pod.spec.resource_claims.is_empty() && !has_extended {
            return PreFilter::Skip;
        }
        let mut pending = self.state.pending.lock();
        pending.drop_observed(cycle.snapshot);
        if pending.has_pod(&cycle.pod.uid) {
            // The pod is assumed on its node, with the devices that it has there.
            return PreFilter::Skip;
        }
        let claims = match PodClaims::of(cycle.snapshot, &pending, cycle.pod) {
            Ok(claims) => claims,
            Err(error) => return PreFilter::Refuse(Rejection::unresolvable(error.to_string())),
        };
        if claims.is_empty() {
            return PreFilter::Skip;
        }
        let state = CycleState {
            claims,
            inventory: cycle.snapshot.devices.inventory.clone(),
            allocated: cycle.snapshot.devices.allocated.clone(),
            pending: pending.allocated().clone(),
            shared: self.state.clone(),
            found: Mutex::default(),
            unavailable: Mutex::default(),
        };
        PreFilter::Check(Slot::new(Arc::new(state)))
    }

    fn filter(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        slot.get::<SharedState>().map_or(Ok(()), |state| state.check(cycle, node))
    }

    /// No node was found: a claim that is of no use on some node is deallocated, if no other pod uses it.
    fn post_filter(&self, asked: &PostFilterInput) -> PostFilter {
        let Some(state) = asked.filters.and_then(|filters| filters.state::<SharedState>(self.name())) else {
            return PostFilter::Skip;
        };
        let uid = &asked.cycle.pod.uid;
        let is_own = |claim: &&Arc<Claim>| claim.reserved_for.iter().all(|consumer| consumer.uid == *uid);
        let stale = state.claims.stale_extended_claim().cloned();
        let found = state.unavailable.lock().iter().find(is_own).cloned().or(stale);
        // A pod that is only simulated has no uid.
        if let Some(claim) = found.filter(|_| !uid.is_empty()) {
            self.state.pending.lock().release_later(uid, claim);
        }
        PostFilter::Skip
    }

    fn pre_score(&self, _cycle: Cycle, slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        match slot.get::<SharedState>().filter(|state| state.claims.has_alternatives()) {
            Some(state) => PreScore::Rate(Slot::new(state.clone())),
            None => PreScore::Skip,
        }
    }

    fn score(&self, _cycle: Cycle, slot: &Slot, node: &NodeState) -> i64 {
        slot.get::<SharedState>().map_or(0, |state| state.score(node.id))
    }

    fn normalize(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize_by_largest(scores, false);
    }

    fn reserve(&self, cycle: Cycle, slot: &Slot, node: &NodeState) -> Verdict {
        let Some(state) = slot.get::<SharedState>() else { return Ok(()) };
        let Some(found) = state.found.lock().get(&node.id).cloned() else {
            return Err(Rejection::error("claim allocation not found for node"));
        };
        let mut allocations = found.allocations.iter();
        let allocated = state.claims.allocated.iter().map(|claim| ReservedClaim::allocated(claim.clone()));
        let new = state.claims.unallocated.iter().zip(allocations.by_ref());
        let new =
            new.map(|(claim, allocation)| ReservedClaim::new(claim.clone(), allocation, || self.state.share_id()));
        let claims = allocated.chain(new).collect();
        let extended = allocations.next().map(|one| (one.to_tree(|| self.state.share_id()), found.extended.clone()));
        let reservation = Reservation { claims, extended };
        let allocations: Vec<_> = found.allocations.iter().map(ClaimAllocation::to_allocation).collect();
        self.state.pending.lock().take(&cycle.pod.uid, reservation, allocations);
        Ok(())
    }

    fn unreserve(&self, pod: &Pod, _node: &str) {
        self.state.pending.lock().release(&pod.uid);
    }

    fn pre_bind<'a>(&'a self, handle: &'a Handle, pod: &'a Pod, _node: &'a str) -> Option<PluginFuture<'a>> {
        let reservation = self.state.pending.lock().reservation(&pod.uid)?;
        Some(Box::pin(async move {
            let written = shell::bind(handle, pod, &reservation, self.binding_timeout).await?;
            self.state.pending.lock().written(&pod.uid, written);
            Ok(())
        }))
    }

    fn clean_up<'a>(&'a self, handle: &'a Handle, pod: &'a Pod) -> Option<PluginFuture<'a>> {
        let claim = self.state.pending.lock().take_release(&pod.uid)?;
        Some(Box::pin(async move { shell::release(handle, &claim).await }))
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            Event::NodeAdded(_) => true,
            Event::NodeChanged { old, new } => old.labels != new.labels || old.allocatable != new.allocatable,
            Event::SelfChanged { old, new } => old.claim_statuses != new.claim_statuses,
            Event::Object { kind: Kind::ResourceClaim, old, new } => claims::may_help(pod, *old, *new),
            Event::Object { kind: Kind::DeviceClass | Kind::ResourceSlice, new, .. } => new.is_some(),
            Event::Object { kind: Kind::DeviceTaintRule, old, .. } => old.is_some(),
            _ => false,
        }
    }
}
