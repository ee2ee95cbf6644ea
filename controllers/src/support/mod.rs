//! Helpers shared by several controllers.

pub(crate) mod batch;
pub(crate) mod clock;
pub(crate) mod conditions;
pub(crate) mod endpoint_pods;
pub(crate) mod event_message;
pub(crate) mod family;
pub(crate) mod finalizers;
pub(crate) mod hash;
pub(crate) mod history;
pub(crate) mod int_or_percent;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod networks;
pub(crate) mod node_events;
pub(crate) mod nodes;
pub(crate) mod own_writes;
pub(crate) mod owner;
pub(crate) mod pod_control;
pub(crate) mod pods;
pub(crate) mod resource_claims;
pub(crate) mod same;
pub(crate) mod selecting;
pub(crate) mod slices;
pub(crate) mod status;
pub(crate) mod taints;
pub(crate) mod volumes;

use client::{Resource, Result, Selection};

use crate::Outcome;

pub(crate) const NODES: Selection = Selection::all(Resource::core("nodes"));
pub(crate) const PODS: Selection = Selection::all(Resource::core("pods"));

/// The outcome of a write to an object that may have been deleted meanwhile, which is not a failure.
pub(crate) fn done_if_not_found<T>(result: Result<T>) -> Result<Outcome> {
    match result {
        Err(error) if error.is_not_found() => Ok(Outcome::Done),
        result => result.map(|_| Outcome::Done),
    }
}

/// The outcome of a create in a namespace: the object may exist already, and the namespace may be terminating or deleted.
pub(crate) fn done_if_not_needed<T>(result: Result<T>) -> Result<Outcome> {
    match result {
        Err(error) if error.is_already_exists() || error.is_terminating() => Ok(Outcome::Done),
        result => done_if_not_found(result),
    }
}

/// Treats rejections by a terminating namespace as success: nothing can be created there.
pub(crate) fn ignore_terminating_namespace(result: Result<Outcome>) -> Result<Outcome> {
    match result {
        Err(error) if error.is_terminating() => Ok(Outcome::Done),
        result => result,
    }
}
