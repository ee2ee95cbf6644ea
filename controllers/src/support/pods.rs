//! Properties of pods, and building them from a template.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, list, time, tree};

use super::{conditions, owner};

pub(crate) fn is_ready(pod: &Tree) -> bool {
    conditions::is_true(pod, "Ready")
}

/// Ready for at least so many seconds.
pub(crate) fn is_available(pod: &Tree, min_ready_seconds: i64, now: i64) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(0)
}

/// The seconds until a ready pod becomes available; None if it is not ready.
pub(crate) fn available_in(pod: &Tree, min_ready_seconds: i64, now: i64) -> Option<i64> {
    let ready = conditions::get(pod, "Ready").filter(|condition| condition.str("status") == "True")?;
    if min_ready_seconds == 0 {
        return Some(0);
    }
    let since = time::parse(ready.str("lastTransitionTime")).ok()?.seconds;
    Some((since + min_ready_seconds - now).max(0))
}

/// When the next ready pod becomes available.
pub(crate) fn next_available(pods: &[Arc<Tree>], min_ready_seconds: i64, now: i64) -> Option<Duration> {
    let seconds =
        pods.iter().filter_map(|pod| available_in(pod, min_ready_seconds, now)).filter(|seconds| *seconds > 0);
    seconds.min().map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
}

/// The phase is final.
pub(crate) fn is_terminal(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

/// Its deletion was requested.
pub(crate) fn is_terminating(pod: &Tree) -> bool {
    pod.at("metadata").has("deletionTimestamp")
}

/// Neither finished nor terminating.
pub(crate) fn is_active(pod: &Tree) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

/// Whether the response to a deletion is a pod that is still terminating.
pub(crate) fn is_ending(answer: &Tree) -> bool {
    let metadata = answer.at("metadata");
    let waits = metadata.int("deletionGracePeriodSeconds").unwrap_or_default() > 0;
    is_terminating(answer) && (waits || !metadata.list("finalizers").is_empty())
}

/// A pod of a template, controlled by its owner. The server generates the name.
pub(crate) fn from_template(template: &Tree, owner: &Tree) -> Tree {
    let mut meta = tree! {
        "generateName" => name_prefix(owner.str("metadata.name")),
        "ownerReferences" => list![owner::controller_reference(owner)],
    };
    for field in ["labels", "annotations", "finalizers"] {
        let value = template.at("metadata").at(field);
        if !value.is_null() {
            meta.set(field, value.clone());
        }
    }
    tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => meta, "spec" => template.at("spec").clone() }
}

/// The generateName prefix of pods; without the dash if it would be invalid.
pub(crate) fn name_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    // The server truncates the name; it is validated without the dash.
    if api::validation::dns1123_subdomain(owner).is_empty() { prefix } else { owner.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ready: &str, since: i64) -> Tree {
        let condition =
            tree! { "type" => "Ready", "status" => ready, "lastTransitionTime" => time::format_seconds(since) };
        tree! { "metadata" => tree! {}, "status" => tree! { "phase" => "Running", "conditions" => list![condition] } }
    }

    #[test]
    fn pods_become_available_after_min_ready_seconds() {
        let check = |pod: &Tree, min: i64, now: i64, want: Option<i64>| {
            assert_eq!(available_in(pod, min, now), want);
            assert_eq!(is_available(pod, min, now), want == Some(0));
        };
        check(&pod("True", 100), 0, 100, Some(0));
        check(&pod("True", 100), 10, 105, Some(5));
        check(&pod("True", 100), 10, 110, Some(0));
        check(&pod("False", 100), 0, 200, None);
        check(&tree! {}, 0, 200, None);
    }

    #[test]
    fn recognizes_finished_and_terminating_pods() {
        let mut running = pod("True", 0);
        assert!(is_active(&running) && is_ready(&running));
        running.child("metadata").set("deletionTimestamp", "now");
        assert!(!is_active(&running) && !is_terminal(&running));
        let failed = tree! { "status" => tree! { "phase" => "Failed" } };
        assert!(is_terminal(&failed) && !is_active(&failed));
    }

    #[test]
    fn builds_pods_with_owner() {
        let owner = tree! {
            "apiVersion" => "apps/v1", "kind" => "ReplicaSet", "metadata" => tree! { "name" => "web-1", "uid" => "u" },
        };
        let template = tree! {
            "metadata" => tree! { "labels" => tree! { "app" => "web" }, "creationTimestamp" => Tree::Null },
            "spec" => tree! { "nodeName" => "n" },
        };
        let pod = from_template(&template, &owner);
        assert_eq!(pod.str("metadata.generateName"), "web-1-");
        assert_eq!((pod.map("metadata.labels").str("app"), pod.str("spec.nodeName")), ("web", "n"));
        assert!(owner::is_controlled_by(&pod, &owner));
        assert!(!pod.at("metadata").has("creationTimestamp"));
    }
}
