//! The search: one device after the other is taken, and given back if the rest cannot be allocated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::Str;
use api::quantity::Quantity;
use podmodel::Node;

use super::plan::{Location, Matcher, Plans, RequestIndex, RequestPlan, locations};
use super::result::{self, ClaimAllocation};
use super::{AllocationError, Allocator, MAX_STEPS};
use crate::capacity::consumption;
use crate::claim::DeviceRequest;
use crate::constraint::Constraint;
use crate::counters::Counters;
use crate::pools::{Pool, PoolState};
use crate::{Claim, MAX_RESULTS, TaintEffect};

/// Why a part of the search ends without a result.
#[derive(Debug)]
enum Stop {
    /// A claim would get too many devices: alternatives with fewer devices may do.
    TooManyResults,
    Failed(AllocationError),
}

impl From<AllocationError> for Stop {
    fn from(error: AllocationError) -> Stop {
        Stop::Failed(error)
    }
}

/// A device that was taken.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) at: RequestIndex,
    pub(super) location: Location,
    /// What is consumed of a shared device.
    pub(super) share: Option<BTreeMap<Str, Quantity>>,
    has_counters: bool,
}

/// The devices of one pod that share a device.
#[derive(Default)]
struct Shares {
    count: usize,
    consumed: BTreeMap<Str, Quantity>,
}

pub(super) struct Search<'a> {
    allocator: &'a Allocator<'a>,
    node: &'a Node,
    pools: &'a [Pool],
    matcher: Matcher<'a>,
    claims: &'a [Arc<Claim>],
    plans: &'a Plans,
    /// By claim.
    constraints: Vec<Vec<Constraint<'a>>>,
    /// By claim.
    taken: Vec<Vec<Taken>>,
    /// By claim and request: the alternative that is used.
    chosen: Vec<Vec<usize>>,
    /// Devices that are not shared, with the claims that took them: with admin access there can be several.
    in_use: HashMap<Location, Vec<usize>>,
    shared: HashMap<Location, Shares>,
    /// By pool: what is left of its counters, once it is needed.
    available: Vec<Option<Counters>>,
    /// By pool: what this search has taken of them.
    consumed: Vec<Counters>,
    steps: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        allocator: &'a Allocator<'a>,
        node: &'a Node,
        pools: &'a [Pool],
        matcher: Matcher<'a>,
        claims: &'a [Arc<Claim>],
        plans: &'a Plans,
    ) -> Search<'a> {
        let constraints = |claim: &'a Arc<Claim>| claim.constraints.iter().map(Constraint::new).collect();
        Search {
            allocator,
            node,
            pools,
            matcher,
            claims,
            plans,
            constraints: claims.iter().map(constraints).collect(),
            taken: vec![Vec::new(); claims.len()],
            chosen: plans.iter().map(|requests| vec![0; requests.len()]).collect(),
            in_use: HashMap::new(),
            shared: HashMap::new(),
            available: vec![None; pools.len()],
            consumed: vec![Counters::default(); pools.len()],
            steps: 0,
        }
    }

    /// Whether all claims could be allocated.
    pub(super) fn run(&mut self) -> Result<bool, AllocationError> {
        self.allocate_claim(0).map_err(|stop| match stop {
            Stop::TooManyResults => AllocationError::TooManyResults,
            Stop::Failed(error) => error,
        })
    }

    /// The allocations of a search that has succeeded.
    pub(super) fn finish(&self) -> Result<Vec<ClaimAllocation>, AllocationError> {
        let one = |(index, claim): (usize, &Arc<Claim>)| {
            let plans = (self.plans[index].as_slice(), self.chosen[index].as_slice());
            result::allocation(claim, plans, &self.taken[index], self.pools, &self.node.name)
        };
        self.claims.iter().enumerate().map(one).collect()
    }

    fn allocate_claim(&mut self, claim: usize) -> Result<bool, Stop> {
        if claim >= self.claims.len() { Ok(true) } else { self.allocate_request(claim, 0) }
    }

    fn allocate_request(&mut self, claim: usize, request: usize) -> Result<bool, Stop> {
        let Some(spec) = self.claims[claim].requests.get(request) else {
            // Another choice for this claim may leave an alternative with fewer devices to the next one.
            return match self.allocate_claim(claim + 1) {
                Err(Stop::TooManyResults) => Ok(false),
                result => result,
            };
        };
        let first = RequestIndex { claim, request, alternative: 0 };
        if !spec.is_list {
            return self.allocate_devices(first, 0, Location::default());
        }
        let mut all_too_large = true;
        for alternative in 0..spec.alternatives.len() {
            match self.allocate_devices(RequestIndex { alternative, ..first }, 0, Location::default()) {
                Err(Stop::TooManyResults) => continue,
                Ok(false) => all_too_large = false,
                Ok(true) => {
                    self.chosen[claim][request] = alternative;
                    return Ok(true);
                }
                Err(stop) => return Err(stop),
            }
        }
        if all_too_large { Err(Stop::TooManyResults) } else { Ok(false) }
    }

    /// Allocates the devices of a request from number `index` on, and then everything else. The devices of one request
    /// are interchangeable, so that only those after `start` are tried.
    fn allocate_devices(&mut self, at: RequestIndex, index: usize, start: Location) -> Result<bool, Stop> {
        let Some(plan) = self.plans[at.claim][at.request].get(at.alternative) else { return Ok(false) };
        if plan.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        if index >= plan.count {
            return self.allocate_request(at.claim, at.request + 1);
        }
        if self.taken[at.claim].len().saturating_add(plan.count - index) > MAX_RESULTS {
            return Err(Stop::TooManyResults);
        }
        if let Some(all) = &plan.all {
            self.spend_step()?;
            return Ok(self.take(at, plan, all[index], true)? && self.allocate_rest(at, index, Location::default())?);
        }
        let pools = self.pools;
        let usable = pools.iter().enumerate().skip(start.pool).filter(|(_, pool)| pool.state == PoolState::Usable);
        for location in usable.flat_map(|(index, pool)| locations(pool, index)).filter(|location| *location >= start) {
            self.spend_step()?;
            let next = Location { device: location.device + 1, ..location };
            if self.is_candidate(at, plan, location)?
                && self.take(at, plan, location, false)?
                && self.allocate_rest(at, index, next)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Continues after a device was taken, and gives it back if that fails.
    fn allocate_rest(&mut self, at: RequestIndex, index: usize, next: Location) -> Result<bool, Stop> {
        let result = self.allocate_devices(at, index + 1, next);
        if !matches!(result, Ok(true)) {
            self.give_back(at.claim);
        }
        result
    }

    fn spend_step(&mut self) -> Result<(), AllocationError> {
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(AllocationError::TooManySteps(self.node.name.to_string())) } else { Ok(()) }
    }

    fn request(&self, at: RequestIndex) -> &'a DeviceRequest {
        &self.claims[at.claim].requests[at.request].alternatives[at.alternative]
    }

    /// Whether a device is free and selected.
    fn is_candidate(
        &mut self,
        at: RequestIndex,
        plan: &RequestPlan,
        location: Location,
    ) -> Result<bool, AllocationError> {
        let request = self.request(at);
        if !self.is_free(at, request, location) {
            return Ok(false);
        }
        let claims = self.claims;
        self.matcher.matches(at, location, (&claims[at.claim], request, &plan.class))
    }

    /// With admin access, a claim gets a device that others use, but only once.
    fn is_free(&self, at: RequestIndex, request: &DeviceRequest, location: Location) -> bool {
        let users = self.in_use.get(&location).map(Vec::as_slice).unwrap_or_default();
        if request.admin_access {
            return !users.contains(&at.claim);
        }
        let (slice, device) = location.in_pools(self.pools);
        users.is_empty() && !self.allocator.allocated.is_taken(&slice.id_of(device))
    }

    /// Takes a device, if nothing prevents it. `must` is set if the claim can only be satisfied with this device.
    fn take(
        &mut self,
        at: RequestIndex,
        plan: &RequestPlan,
        location: Location,
        must: bool,
    ) -> Result<bool, AllocationError> {
        debug_assert!(plan.count > 0, "a request without devices takes none");
        let request = self.request(at);
        if !self.is_free(at, request, location) || self.is_tainted(request, location) {
            return Ok(false);
        }
        let Some(share) = self.share_of(at, request, location)? else { return Ok(false) };
        let (_, device) = location.in_pools(self.pools);
        let is_in_use = share.is_some() && self.is_shared(location);
        let has_counters = !is_in_use && !device.consumes.is_empty();
        if has_counters && !self.take_counters(location) {
            return Ok(false);
        }
        if !self.add_to_constraints(at, location) {
            if has_counters {
                self.consumed[location.pool].subtract(device);
            }
            return if must { Err(self.constraint_error(at, location)) } else { Ok(false) };
        }
        match &share {
            None => self.in_use.entry(location).or_default().push(at.claim),
            Some(consumed) => self.shared.entry(location).or_default().add(consumed),
        }
        self.taken[at.claim].push(Taken { at, location, share, has_counters });
        Ok(true)
    }

    /// Gives back the last device of a claim.
    fn give_back(&mut self, claim: usize) {
        let Some(taken) = self.taken[claim].pop() else { return };
        let (_, device) = taken.location.in_pools(self.pools);
        match &taken.share {
            None => {
                if let Some(users) = self.in_use.get_mut(&taken.location) {
                    users.retain(|user| *user != claim);
                }
            }
            Some(consumed) => {
                let is_last = self.shared.get_mut(&taken.location).is_some_and(|shares| shares.remove(consumed));
                if is_last {
                    self.shared.remove(&taken.location);
                }
            }
        }
        let (name, full_name) = self.names(taken.at);
        self.constraints[claim].iter_mut().for_each(|constraint| constraint.remove(&name, &full_name));
        if taken.has_counters {
            self.consumed[taken.location.pool].subtract(device);
        }
    }

    fn is_tainted(&self, request: &DeviceRequest, location: Location) -> bool {
        let (slice, device) = location.in_pools(self.pools);
        let id = slice.id_of(device);
        let mut taints = self.allocator.inventory.taints(&id, device);
        taints.any(|taint| {
            taint.effect() != TaintEffect::None
                && !request.tolerations.iter().any(|toleration| toleration.tolerates(taint))
        })
    }

    /// Whether claims share a device already.
    fn is_shared(&self, location: Location) -> bool {
        let (slice, device) = location.in_pools(self.pools);
        self.shared.contains_key(&location) || self.allocator.allocated.is_shared(&slice.id_of(device))
    }

    /// What would be consumed of a device that is shared, `Some(None)` if it is not shared, and None if there is not
    /// enough left of it.
    #[allow(clippy::type_complexity)] // Its three cases have no better names than these.
    fn share_of(
        &self,
        at: RequestIndex,
        request: &DeviceRequest,
        location: Location,
    ) -> Result<Option<Option<BTreeMap<Str, Quantity>>>, AllocationError> {
        let (slice, device) = location.in_pools(self.pools);
        let id = slice.id_of(device);
        let consumed = consumption(request, device).map_err(|error| AllocationError::Capacity {
            claim: self.claims[at.claim].key.to_string(),
            request: request.name.to_string(),
            device: id.to_string(),
            error,
        })?;
        let Some(consumed) = consumed else { return Ok(None) };
        let shares = self.shared.get(&location);
        let has_capacity = consumed.iter().all(|(name, amount)| {
            let mut total = self.allocator.allocated.consumed(&id, name);
            total += amount;
            if let Some(taken) = shares.and_then(|shares| shares.consumed.get(name)) {
                total += taken;
            }
            total <= device.capacity[name].value
        });
        Ok(has_capacity.then(|| device.allows_multiple.then_some(consumed)))
    }

    fn take_counters(&mut self, location: Location) -> bool {
        let (pool, (_, device)) = (&self.pools[location.pool], location.in_pools(self.pools));
        let allocated = self.allocator.allocated;
        let available = self.available[location.pool].get_or_insert_with(|| {
            let slices = pool.slices.iter().chain(&pool.others).map(|slice| &**slice);
            pool.counters.available(slices, allocated)
        });
        let consumed = &mut self.consumed[location.pool];
        consumed.add(device);
        let is_enough = available.covers(consumed);
        if !is_enough {
            consumed.subtract(device);
        }
        is_enough
    }

    fn names(&self, at: RequestIndex) -> (Str, Str) {
        let request = &self.claims[at.claim].requests[at.request];
        (request.name.clone(), request.name_of(at.alternative))
    }

    /// Adds a device to all constraints, or to none.
    fn add_to_constraints(&mut self, at: RequestIndex, location: Location) -> bool {
        let (name, full_name) = self.names(at);
        let (slice, device) = location.in_pools(self.pools);
        let constraints = &mut self.constraints[at.claim];
        let violated = constraints.iter_mut().position(|one| !one.add(&name, &full_name, &slice.driver, device));
        let Some(added) = violated else { return true };
        constraints[..added].iter_mut().for_each(|one| one.remove(&name, &full_name));
        false
    }

    fn constraint_error(&self, at: RequestIndex, location: Location) -> AllocationError {
        let (slice, device) = location.in_pools(self.pools);
        AllocationError::Constraint {
            claim: self.claims[at.claim].key.to_string(),
            request: self.request(at).name.to_string(),
            device: slice.id_of(device),
        }
    }
}

impl Shares {
    fn add(&mut self, consumed: &BTreeMap<Str, Quantity>) {
        self.count += 1;
        for (name, amount) in consumed {
            *self.consumed.entry(name.clone()).or_default() += amount;
        }
    }

    /// Whether it was the last one.
    fn remove(&mut self, consumed: &BTreeMap<Str, Quantity>) -> bool {
        self.count -= 1;
        for (name, amount) in consumed {
            if let Some(total) = self.consumed.get_mut(name) {
                *total -= amount;
            }
        }
        self.count == 0
    }
}
