//! The allocator: finds devices for all claims of a pod on one node. It is an exhaustive search that takes the first
//! solution; devices are tried in the order of their pools, slices and positions.

mod plan;
#[cfg(test)]
mod reference;
mod result;
mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use podmodel::Node;

use crate::capacity::CapacityError;
use crate::{Allocated, Claim, DeviceId, Inventory, SelectorError, Selectors, pools};

pub use result::{ClaimAllocation, DeviceAllocation};

/// The most devices of all claims of a pod, which bounds the depth of the search.
pub const MAX_DEVICES_PER_POD: usize = 512;
/// The steps of a search on one node, after which it is given up. A step tries one device.
const MAX_STEPS: usize = 200_000;

/// Why devices cannot be allocated, whatever is free.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error(
        "claim {claim}, request {request}: could not retrieve device class {class}: deviceclass.resource.k8s.io {class:?} not found"
    )]
    NoClass { claim: String, request: String, class: String },
    #[error("claim {claim}, request {request}: unsupported count mode")]
    UnknownMode { claim: String, request: String },
    #[error(
        "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently being updated"
    )]
    IncompletePool { claim: String, request: String, pool: String },
    #[error("claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently invalid")]
    InvalidPool { claim: String, request: String, pool: String },
    #[error("claim {claim}: number of requested devices {count} exceeds the claim limit of {}", crate::MAX_RESULTS)]
    TooManyDevices { claim: String, count: usize },
    #[error("the claims request {0} devices, which exceeds the limit of {MAX_DEVICES_PER_POD} for a pod")]
    TooManyDevicesOfPod(usize),
    #[error("allocation max size exceeded")]
    TooManyResults,
    #[error("class {class}: selector #{index}{}: {error}", on(.device))]
    ClassSelector { class: String, index: usize, device: Option<DeviceId>, error: SelectorError },
    #[error("claim {claim}: selector #{index}{}: {error}", on(.device))]
    ClaimSelector { claim: String, index: usize, device: Option<DeviceId>, error: SelectorError },
    #[error("claim {claim}, request {request}: checking capacity for device {device}: {error}")]
    Capacity { claim: String, request: String, device: String, error: CapacityError },
    #[error(
        "claim {claim}, request {request}: cannot add device {device} because a claim constraint would not be satisfied"
    )]
    Constraint { claim: String, request: String, device: DeviceId },
    #[error("create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms")]
    NodeSelector { claim: String, terms: usize },
    #[error("node {0}: timed out trying to allocate devices")]
    TooManySteps(String),
    /// Devices of other nodes may do.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
}

fn on(device: &Option<DeviceId>) -> String {
    device.as_ref().map(|device| format!(" on device {device}")).unwrap_or_default()
}

/// What devices are allocated from.
#[derive(Clone, Copy)]
pub struct Allocator<'a> {
    pub inventory: &'a Inventory,
    pub allocated: Allocated<'a>,
    pub selectors: &'a Selectors,
}

impl Allocator<'_> {
    /// Allocates devices that are available on a node, for claims that have none. None if there are not enough.
    pub fn allocate(
        &self,
        node: &Node,
        claims: &[Arc<Claim>],
    ) -> Result<Option<Vec<ClaimAllocation>>, AllocationError> {
        let pools = pools::gather(self.inventory, node);
        let mut matcher = plan::Matcher::new(self.selectors, node, &pools);
        let plans = plan::plan(self.inventory, &mut matcher, claims)?;
        let mut search = search::Search::new(self, node, &pools, matcher, claims, &plans);
        if search.run()? {
            return search.finish().map(Some);
        }
        if pools.iter().any(|pool| pool.state == pools::PoolState::Invalid) {
            return Err(AllocationError::InvalidPools);
        }
        Ok(None)
    }
}
