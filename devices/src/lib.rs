//! Devices of dynamic resource allocation: claims, classes and slices as plain values, device selectors in CEL, and the
//! allocator: a pure function from a node, the devices that are published for it and those that are in use to the devices
//! of a pod's claims. It knows neither the cluster around an object, nor how objects are transferred.

#![warn(unreachable_pub)]

mod allocated;
mod allocator;
mod binding;
mod capacity;
mod claim;
mod class;
mod constraint;
mod counters;
mod extended;
mod id;
mod inventory;
mod pools;
mod selector;
mod slice;
mod taints;

pub use allocated::{Allocated, AllocatedState};
pub use allocator::{AllocationError, Allocator, ClaimAllocation, DeviceAllocation, MAX_DEVICES_PER_POD};
pub use binding::{BindingFailure, is_ready_for_binding};
pub use claim::{
    AllocatedDevice, Allocation, Claim, DeviceRequest, DeviceStatus, EXTENDED_RESOURCE_CLAIM, FINALIZER, Mode, Request,
    Reservation,
};
pub use class::DeviceClass;
pub use extended::{ExtendedRequests, RequestMapping, extended_requests, is_extended};
pub use id::{DeviceId, PoolId};
pub use inventory::Inventory;
pub use selector::{SelectorError, Selectors, environment};
pub use slice::{Attribute, Capacity, Device, NodeScope, RequestPolicy, ResourceSlice};
pub use taints::{DeviceTaint, DeviceToleration, TaintEffect, TaintRule};

use api::quantity::Quantity;
use api::{Map, Str, Tree};
use std::collections::BTreeMap;

/// The most devices of one claim.
pub const MAX_RESULTS: usize = 32;

/// A list of texts.
fn texts(list: &[Tree]) -> Vec<Str> {
    list.iter().filter_map(Tree::as_str).map(Str::new).collect()
}

/// A quantity, which may also be written as a number.
fn quantity(tree: &Tree) -> Option<Quantity> {
    match (tree.as_str(), tree.as_int()) {
        (Some(text), _) => Quantity::parse(text).ok(),
        (None, number) => number.map(|number| Quantity::new(number, Default::default())),
    }
}

/// Quantities by name.
fn quantities(map: &Map) -> BTreeMap<Str, Quantity> {
    map.iter().filter_map(|(name, one)| Some((Str::new(name), quantity(one)?))).collect()
}
