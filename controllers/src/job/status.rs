//! The status of a job. Zero fields are omitted, as upstream does.

use std::collections::BTreeSet;

use api::time::{self, Timestamp};
use api::{Tree, list, tree};

/// The uids of finished pods that are not counted yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UncountedPods {
    pub succeeded: BTreeSet<String>,
    pub failed: BTreeSet<String>,
}

impl UncountedPods {
    pub(super) fn read(status: &Tree) -> UncountedPods {
        let read = |field: &str| {
            let uids = status.at("uncountedTerminatedPods").list(field).iter();
            uids.filter_map(|uid| uid.as_str().map(str::to_string)).collect()
        };
        UncountedPods { succeeded: read("succeeded"), failed: read("failed") }
    }

    pub(super) fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }
}

/// How a job ends: first a target condition, then the final one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FinishedCondition {
    pub success: bool,
    pub reason: String,
    pub message: String,
    /// The status has the target condition already.
    pub known: bool,
}

impl FinishedCondition {
    pub(super) fn failure(reason: &str, message: &str) -> FinishedCondition {
        FinishedCondition { success: false, reason: reason.to_string(), message: message.to_string(), known: false }
    }

    pub(super) fn success(reason: &str, message: &str) -> FinishedCondition {
        FinishedCondition { success: true, ..FinishedCondition::failure(reason, message) }
    }

    /// The condition in the status until all pods are counted.
    pub(super) fn target(&self) -> &'static str {
        if self.success { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    pub(super) fn end(&self) -> &'static str {
        if self.success { "Complete" } else { "Failed" }
    }
}

/// An event about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub ty: &'static str,
    pub reason: String,
    pub message: String,
}

impl Event {
    pub(super) fn new(ty: &'static str, reason: &str, message: &str) -> Event {
        Event { ty, reason: reason.to_string(), message: message.to_string() }
    }
}

pub(super) fn count(status: &Tree, field: &str) -> i64 {
    status.int(field).unwrap_or(0)
}

pub(crate) fn set_count(status: &mut Tree, field: &str, value: i64) {
    if value == 0 {
        status.remove(field);
    } else {
        status.set(field, value);
    }
}

/// Counts uids whose pods have no finalizer and removes them from the list.
pub(super) fn count_released(status: &mut Tree, tracked: &BTreeSet<String>) {
    for field in ["succeeded", "failed"] {
        let mut uids: Vec<Tree> = status.at("uncountedTerminatedPods").list(field).to_vec();
        let before = uids.len();
        uids.retain(|uid| uid.as_str().is_some_and(|uid| tracked.contains(uid)));
        let settled = (before - uids.len()) as i64;
        set_count(status, field, count(status, field) + settled);
        let pods = status.child("uncountedTerminatedPods");
        if uids.is_empty() {
            pods.remove(field);
        } else {
            pods.set(field, uids);
        }
    }
}

pub(super) fn add_uncounted(status: &mut Tree, field: &str, uid: &str) {
    status.child("uncountedTerminatedPods").list_entry(field).push(Tree::from(uid));
}

/// Updates a condition in place; returns whether it changed. A condition that never existed is not added as False.
pub(crate) fn set_condition(
    status: &mut Tree,
    ty: &str,
    holds: bool,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> bool {
    let state = if holds { "True" } else { "False" };
    let time = time::format_seconds(now.seconds);
    let condition = tree! {
        "type" => ty,
        "status" => state,
        "lastProbeTime" => time.clone(),
        "lastTransitionTime" => time,
        "reason" => reason,
        "message" => message,
    };
    let there = status.list("conditions").iter().position(|condition| condition.str("type") == ty);
    match there {
        None if !holds => false,
        None if status.list("conditions").is_empty() => {
            status.set("conditions", list![condition]);
            true
        }
        None => {
            status.list_entry("conditions").push(condition);
            true
        }
        Some(at) => {
            let old = &mut status.list_mut("conditions")[at];
            let same = ["status", "reason", "message"].iter().all(|field| old.str(field) == condition.str(field));
            if !same {
                *old = condition;
            }
            !same
        }
    }
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn counts_released_pods_once() {
        let json = r#"{"succeeded":2,"uncountedTerminatedPods":{"succeeded":["a","b"],"failed":["c"]}}"#;
        let mut status = decode(json.as_bytes()).expect("a status");
        count_released(&mut status, &BTreeSet::from(["b".to_string()]));
        let want = r#"{"succeeded":3,"failed":1,"uncountedTerminatedPods":{"succeeded":["b"]}}"#;
        assert_eq!(status, decode(want.as_bytes()).expect("a status"));
        let before = status.clone();
        count_released(&mut status, &BTreeSet::from(["b".to_string()]));
        assert_eq!(status, before, "nothing is left to count");
    }

    #[test]
    fn unchanged_conditions_are_kept() {
        let now = |seconds: i64| Timestamp { seconds, nanos: 0 };
        let mut status = tree! {};
        assert!(!set_condition(&mut status, "Suspended", false, ("JobResumed", "Job resumed"), now(1)));
        assert!(set_condition(&mut status, "Suspended", true, ("JobSuspended", "Job suspended"), now(1)));
        assert!(!set_condition(&mut status, "Suspended", true, ("JobSuspended", "Job suspended"), now(2)));
        assert_eq!(status.list("conditions")[0].str("lastTransitionTime"), "1970-01-01T00:00:01Z");
        assert!(set_condition(&mut status, "Suspended", false, ("JobResumed", "Job resumed"), now(3)));
        assert_eq!(status.list("conditions").len(), 1);
    }
}
