//! Helpers shared by several controllers.

pub mod batch;
pub mod clock;
pub mod conditions;
pub mod family;
pub mod finalizers;
pub mod hash;
pub mod history;
pub mod keys;
pub mod kinds;
pub mod networks;
pub mod node_events;
pub mod nodes;
pub mod note;
pub mod own_writes;
pub mod owner;
pub mod pod_control;
pub mod pods;
pub mod same;
pub mod selecting;
pub mod serving;
pub mod share;
pub mod slices;
pub mod status;
pub mod taints;
pub mod volumes;

use client::{Resource, Result, Selection};

use crate::Outcome;

pub const NODES: Selection = Selection::all(Resource::core("nodes"));
pub const PODS: Selection = Selection::all(Resource::core("pods"));

/// Treats rejections by a terminating namespace as success: nothing can be created there.
pub fn unless_going(result: Result<Outcome>) -> Result<Outcome> {
    match result {
        Err(error) if error.is_terminating() => Ok(Outcome::Done),
        result => result,
    }
}
