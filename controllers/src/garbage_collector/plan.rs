//! Decides what to do with an object, from the graph and the owners that were looked up.

use super::graph::{Graph, OwnerDescription, OwnerState};
use super::object::{FOREGROUND, ORPHAN, Object, Uid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// The result of looking up an owner that the graph does not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerLookup {
    Present {
        waiting: bool,
    },
    Absent,
    /// A cluster-scoped object refers to a namespaced owner: the reference cannot be resolved.
    Impossible,
}

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// Look up this owner, then decide again.
    FetchOwner(OwnerDescription),
    Delete {
        policy: Policy,
        /// Clear `blockOwnerDeletion` first, so that a cycle does not wait for itself.
        unblock: bool,
    },
    /// Clear `blockOwnerDeletion`.
    Unblock,
    /// Remove these owner references; other owners keep the object.
    Release(Vec<Uid>),
    /// All dependents are processed: remove this finalizer.
    Finish(&'static str),
    /// Remove the object from the owner references of these, then finish.
    Orphan(Vec<Uid>),
}

pub(super) fn plan(graph: &Graph, uid: &Uid, verdicts: &[(OwnerDescription, OwnerLookup)]) -> Step {
    match graph.get(uid) {
        None => Step::Nothing,
        Some(object) if object.orphans_dependents() => {
            Step::Orphan(graph.dependents_of(uid).map(|dependent| dependent.uid.clone()).collect())
        }
        Some(object) if object.deletes_dependents() => {
            let waits = graph.dependents_of(uid).any(|dependent| dependent.blocks(uid));
            match waits {
                false => Step::Finish(FOREGROUND),
                true if !object.delete_requested && graph.is_in_cycle(object) => Step::Unblock,
                true => Step::Nothing,
            }
        }
        // The deletion is in progress; the dependents are processed when the object is deleted.
        Some(object) if object.deleting || object.delete_requested || object.owners.is_empty() => Step::Nothing,
        Some(object) => decide_owned(graph, object, verdicts),
    }
}

fn decide_owned(graph: &Graph, object: &Object, verdicts: &[(OwnerDescription, OwnerLookup)]) -> Step {
    let (mut is_held, mut is_awaited, mut rest) = (false, false, Vec::new());
    for owner in &object.owners {
        let description = OwnerDescription::new(object, owner);
        let verdict =
            verdicts.iter().find(|(delete_requested, _)| *delete_requested == description).map(|(_, verdict)| *verdict);
        let holds = match (graph.owner_state(object, owner), verdict) {
            (OwnerState::Unknown, None) => return Step::FetchOwner(description),
            (OwnerState::Unknown, Some(OwnerLookup::Impossible)) => return Step::Nothing,
            (OwnerState::Unknown, Some(OwnerLookup::Present { waiting: false })) => OwnerState::Solid,
            (OwnerState::Unknown, Some(OwnerLookup::Present { waiting: true })) => OwnerState::Waiting,
            (OwnerState::Unknown, Some(OwnerLookup::Absent)) => OwnerState::Dangling,
            (holds, _) => holds,
        };
        is_held |= holds == OwnerState::Solid;
        is_awaited |= holds == OwnerState::Waiting;
        if holds != OwnerState::Solid {
            rest.push(owner.uid.clone());
        }
    }
    match (is_held, rest.is_empty()) {
        (true, true) => Step::Nothing,
        (true, false) => Step::Release(rest),
        (false, _) => delete(graph, object, is_awaited),
    }
}

fn delete(graph: &Graph, object: &Object, is_awaited: bool) -> Step {
    let mut dependents = graph.dependents_of(&object.uid).peekable();
    if is_awaited && dependents.peek().is_some() {
        return Step::Delete { policy: Policy::Foreground, unblock: dependents.any(Object::deletes_dependents) };
    }
    // A policy that was set by an earlier delete request takes precedence.
    let policy = match object {
        object if object.has_finalizer(ORPHAN) => Policy::Orphan,
        object if object.has_finalizer(FOREGROUND) => Policy::Foreground,
        _ => Policy::Background,
    };
    Step::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests;
