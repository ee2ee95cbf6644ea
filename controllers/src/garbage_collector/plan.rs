//! What to do with an object that was looked at, from the graph and from what the server said of owners.

use super::graph::{Description, Graph, Holds};
use super::object::{FOREGROUND, ORPHAN, Object, Uid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// What the server says of an owner that the graph does not know as it is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Present {
        waiting: bool,
    },
    Absent,
    /// An object without a namespace names an owner that has one: it cannot be found, nor be missed.
    Impossible,
}

#[derive(Debug, PartialEq)]
pub enum Step {
    Nothing,
    /// Ask the server for this owner, then decide again.
    Ask(Description),
    Delete {
        policy: Policy,
        /// Before that it says that no owner need wait for it, or a circle would wait for itself.
        unblock: bool,
    },
    /// Say that no owner need wait for it.
    Unblock,
    /// Take these out of its owners: others hold it.
    Release(Vec<Uid>),
    /// Nobody is waited for any more.
    Finish(&'static str),
    /// Take it out of the owners of these, then finish.
    Orphan(Vec<Uid>),
}

pub fn plan(graph: &Graph, uid: &Uid, verdicts: &[(Description, Verdict)]) -> Step {
    match graph.get(uid) {
        None => Step::Nothing,
        Some(object) if object.orphans_dependents() => {
            Step::Orphan(graph.dependents_of(uid).map(|dependent| dependent.uid.clone()).collect())
        }
        Some(object) if object.deletes_dependents() => {
            let waits = graph.dependents_of(uid).any(|dependent| dependent.blocks(uid));
            match waits {
                false => Step::Finish(FOREGROUND),
                true if !object.asked && graph.is_in_circle(object) => Step::Unblock,
                true => Step::Nothing,
            }
        }
        // It is on its way; its dependents are looked at when it is gone.
        Some(object) if object.deleting || object.asked || object.owners.is_empty() => Step::Nothing,
        Some(object) => judge(graph, object, verdicts),
    }
}

fn judge(graph: &Graph, object: &Object, verdicts: &[(Description, Verdict)]) -> Step {
    let (mut is_held, mut is_awaited, mut rest) = (false, false, Vec::new());
    for owner in &object.owners {
        let description = Description::new(object, owner);
        let verdict = verdicts.iter().find(|(asked, _)| *asked == description).map(|(_, verdict)| *verdict);
        let holds = match (graph.judge(object, owner), verdict) {
            (Holds::Unknown, None) => return Step::Ask(description),
            (Holds::Unknown, Some(Verdict::Impossible)) => return Step::Nothing,
            (Holds::Unknown, Some(Verdict::Present { waiting: false })) => Holds::Solid,
            (Holds::Unknown, Some(Verdict::Present { waiting: true })) => Holds::Waiting,
            (Holds::Unknown, Some(Verdict::Absent)) => Holds::Dangling,
            (holds, _) => holds,
        };
        is_held |= holds == Holds::Solid;
        is_awaited |= holds == Holds::Waiting;
        if holds != Holds::Solid {
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
    // What somebody has decided for it before holds.
    let policy = match object {
        object if object.has_finalizer(ORPHAN) => Policy::Orphan,
        object if object.has_finalizer(FOREGROUND) => Policy::Foreground,
        _ => Policy::Background,
    };
    Step::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests;
