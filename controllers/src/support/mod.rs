//! What more than one controller needs.

pub mod batch;
pub mod clock;
pub mod conditions;
pub mod discovery;
pub mod everything;
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
pub mod own;
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

use client::{Error, Resource, Result, Selection};

use crate::Outcome;

pub const NODES: Selection = Selection::all(Resource::core("nodes"));
pub const PODS: Selection = Selection::all(Resource::core("pods"));

/// What the server said, as users are told it.
pub fn said(error: &Error) -> String {
    match error {
        Error::Status { message, .. } => message.clone(),
        error => error.to_string(),
    }
}

/// A namespace that is going takes nothing new: whoever wanted to make something there is done.
pub fn unless_going(result: Result<Outcome>) -> Result<Outcome> {
    match result {
        Err(error) if error.is_terminating() => Ok(Outcome::Done),
        result => result,
    }
}
