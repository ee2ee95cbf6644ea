//! What each request needs, before any device is chosen.

use std::collections::HashMap;
use std::sync::Arc;

use podmodel::Node;

use super::{AllocationError, MAX_DEVICES_PER_POD};
use crate::capacity::consumption;
use crate::claim::{DeviceRequest, Mode};
use crate::pools::{Pool, PoolState};
use crate::slice::NodeScope;
use crate::{Claim, Device, DeviceClass, Inventory, MAX_RESULTS, ResourceSlice, Selectors};

/// A device by its position in the pools of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Location {
    pub(super) pool: usize,
    pub(super) slice: usize,
    pub(super) device: usize,
}

impl Location {
    pub(super) fn in_pools(self, pools: &[Pool]) -> (&ResourceSlice, &Device) {
        let slice = &pools[self.pool].slices[self.slice];
        (slice, &slice.devices[self.device])
    }
}

/// A request, or one of its alternatives, by its position in the claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RequestIndex {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
}

/// What a request, or one of its alternatives, needs.
#[derive(Debug)]
pub(super) struct RequestPlan {
    pub(super) class: Arc<DeviceClass>,
    pub(super) count: usize,
    /// The devices of a request for all of them.
    pub(super) all: Option<Vec<Location>>,
}

/// The plans by claim, request and alternative.
pub(super) type Plans = Vec<Vec<Vec<RequestPlan>>>;

/// Checks which devices requests select. A device is checked once for each request.
pub(super) struct Matcher<'a> {
    selectors: &'a Selectors,
    node: &'a Node,
    pools: &'a [Pool],
    known: HashMap<(RequestIndex, Location), bool>,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(selectors: &'a Selectors, node: &'a Node, pools: &'a [Pool]) -> Matcher<'a> {
        Matcher { selectors, node, pools, known: HashMap::new() }
    }

    pub(super) fn matches(
        &mut self,
        at: RequestIndex,
        location: Location,
        (claim, request, class): (&Claim, &DeviceRequest, &DeviceClass),
    ) -> Result<bool, AllocationError> {
        if let Some(known) = self.known.get(&(at, location)) {
            return Ok(*known);
        }
        let (slice, device) = location.in_pools(self.pools);
        let is_here = slice.nodes != NodeScope::PerDevice || device.nodes.contains(self.node);
        let found = self.satisfies(slice, device, &class.selectors, |index, device, error| {
            AllocationError::ClassSelector { class: class.name.to_string(), index, device, error }
        })? && self.satisfies(slice, device, &request.selectors, |index, device, error| {
            AllocationError::ClaimSelector { claim: claim.key.to_string(), index, device, error }
        })? && is_here;
        self.known.insert((at, location), found);
        Ok(found)
    }

    fn satisfies(
        &self,
        slice: &ResourceSlice,
        device: &Device,
        expressions: &[Arc<str>],
        fail: impl Fn(usize, Option<crate::DeviceId>, crate::SelectorError) -> AllocationError,
    ) -> Result<bool, AllocationError> {
        for (index, expression) in expressions.iter().enumerate() {
            match self.selectors.matches(expression, &slice.driver, device) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    let is_runtime = matches!(error, crate::SelectorError::Runtime(_));
                    return Err(fail(index, is_runtime.then(|| slice.id_of(device)), error));
                }
            }
        }
        Ok(true)
    }
}

/// Plans all requests, or says why they can never be satisfied.
pub(super) fn plan(
    inventory: &Inventory,
    matcher: &mut Matcher<'_>,
    claims: &[Arc<Claim>],
) -> Result<Plans, AllocationError> {
    let (mut plans, mut total) = (Vec::with_capacity(claims.len()), 0usize);
    for (claim_index, claim) in claims.iter().enumerate() {
        let (mut of_claim, mut least) = (Vec::with_capacity(claim.requests.len()), 0usize);
        for (request_index, request) in claim.requests.iter().enumerate() {
            let one = |(alternative, wanted)| {
                let at = RequestIndex { claim: claim_index, request: request_index, alternative };
                plan_request(inventory, matcher, at, claim, wanted)
            };
            let planned = request.alternatives.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
            least = least.saturating_add(planned.iter().map(|plan| plan.count).min().unwrap_or(0));
            of_claim.push(planned);
        }
        if least > MAX_RESULTS {
            return Err(AllocationError::TooManyDevices { claim: claim.key.to_string(), count: least });
        }
        total += least;
        plans.push(of_claim);
    }
    if total > MAX_DEVICES_PER_POD { Err(AllocationError::TooManyDevicesOfPod(total)) } else { Ok(plans) }
}

fn plan_request(
    inventory: &Inventory,
    matcher: &mut Matcher<'_>,
    at: RequestIndex,
    claim: &Claim,
    request: &DeviceRequest,
) -> Result<RequestPlan, AllocationError> {
    let names = || (claim.key.to_string(), request.name.to_string());
    let class = inventory.class(&request.class).cloned().ok_or_else(|| {
        let (claim, name) = names();
        AllocationError::NoClass { claim, request: name, class: request.class.to_string() }
    })?;
    match request.mode {
        Mode::ExactCount => {
            let count = usize::try_from(request.count).unwrap_or(usize::MAX);
            Ok(RequestPlan { class, count, all: None })
        }
        Mode::All => {
            let all = all_devices(matcher, at, claim, request, &class)?;
            Ok(RequestPlan { class, count: all.len(), all: Some(all) })
        }
        Mode::Unknown => {
            let (claim, request) = names();
            Err(AllocationError::UnknownMode { claim, request })
        }
    }
}

/// All devices that a request selects. Devices that are in use are among them: then not all can be allocated.
fn all_devices(
    matcher: &mut Matcher<'_>,
    at: RequestIndex,
    claim: &Claim,
    request: &DeviceRequest,
    class: &DeviceClass,
) -> Result<Vec<Location>, AllocationError> {
    let mut all = Vec::new();
    for (index, pool) in matcher.pools.iter().enumerate() {
        let (claim_name, request_name, id) = (claim.key.to_string(), request.name.to_string(), pool.id.to_string());
        match pool.state {
            PoolState::Usable => {}
            PoolState::Incomplete => {
                return Err(AllocationError::IncompletePool { claim: claim_name, request: request_name, pool: id });
            }
            PoolState::Invalid => {
                return Err(AllocationError::InvalidPool { claim: claim_name, request: request_name, pool: id });
            }
        }
        for location in locations(pool, index) {
            if matcher.matches(at, location, (claim, request, class))?
                && could_hold(matcher.pools, location, claim, request)?
            {
                all.push(location);
            }
        }
    }
    Ok(all)
}

/// Whether a device could satisfy a request if no claim used it.
fn could_hold(
    pools: &[Pool],
    location: Location,
    claim: &Claim,
    request: &DeviceRequest,
) -> Result<bool, AllocationError> {
    let (_, device) = location.in_pools(pools);
    let consumed = consumption(request, device).map_err(|error| AllocationError::Capacity {
        claim: claim.key.to_string(),
        request: request.name.to_string(),
        device: device.name.to_string(),
        error,
    })?;
    Ok(consumed.is_some_and(|consumed| consumed.iter().all(|(name, amount)| *amount <= device.capacity[name].value)))
}

/// The devices of a pool, in order.
pub(super) fn locations(pool: &Pool, index: usize) -> impl Iterator<Item = Location> + '_ {
    let of_slice =
        move |(slice, devices): (usize, usize)| (0..devices).map(move |device| Location { pool: index, slice, device });
    pool.slices.iter().map(|slice| slice.devices.len()).enumerate().flat_map(of_slice)
}
