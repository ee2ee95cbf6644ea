//! Conditions of pods.

use api::{Tree, time, tree};

/// The condition of this type, if the pod has it.
pub(super) fn find<'a>(pod: &'a Tree, kind: &str) -> Option<&'a Tree> {
    pod.list("status.conditions").iter().find(|condition| condition.str("type") == kind)
}

pub(super) fn is_true(pod: &Tree, kind: &str) -> bool {
    find(pod, kind).is_some_and(|condition| condition.str("status") == "True")
}

/// Sets a condition; the transition time is kept if the status is unchanged.
pub(super) fn set(pod: &mut Tree, kind: &str, status: &str, reason: &str, message: &str, now: i64) {
    let mut condition = tree! {
        "type" => kind,
        "status" => status,
        "lastProbeTime" => Tree::Null,
        "lastTransitionTime" => time::format_seconds(now),
    };
    for (key, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition.set(key, text);
        }
    }
    let conditions = pod.child("status").list_entry("conditions");
    match conditions.iter_mut().find(|old| old.str("type") == kind) {
        Some(old) => {
            if old.str("status") == status {
                condition.set("lastTransitionTime", old.at("lastTransitionTime").clone());
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}
