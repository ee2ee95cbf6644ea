//! Decides which pods are garbage.

use std::sync::Arc;

use api::time::{self, Timestamp};
use api::{Tree, tree};

use crate::support::conditions;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The state of the pod's node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Node<'a> {
    /// The pod has no node.
    None,
    There(&'a Tree),
    /// The node was deleted.
    Gone,
}

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    /// Force-deleted, after the status is set to Failed unless it has finished.
    Delete {
        status: Option<Tree>,
    },
}

pub(super) fn plan(pod: &Tree, node: Node<'_>, now: Timestamp) -> Plan {
    let is_deleted = pod.at("metadata").has("deletionTimestamp");
    match node {
        Node::Gone => Plan::Delete { status: failed(pod, Some("PodGC: node no longer exists"), now) },
        Node::None if is_deleted => Plan::Delete { status: failed(pod, None, now) },
        Node::There(node) if is_deleted && is_out_of_service(node) => Plan::Delete { status: failed(pod, None, now) },
        _ => Plan::Keep,
    }
}

/// The out-of-service taint: its kubelet will not end the pod.
fn is_out_of_service(node: &Tree) -> bool {
    let mut conditions = node.list("status.conditions").iter();
    let is_ready = conditions.any(|c| c.str("type") == "Ready" && c.str("status") == "True");
    !is_ready && node.list("spec.taints").iter().any(|taint| taint.str("key") == OUT_OF_SERVICE)
}

pub(super) fn has_ended(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

/// The status patch, with the disruption reason if there is one.
fn failed(pod: &Tree, why: Option<&str>, now: Timestamp) -> Option<Tree> {
    if has_ended(pod) {
        return None;
    }
    let mut status = tree! { "phase" => "Failed" };
    if let Some(message) = why {
        let mut condition = tree! {
            "type" => "DisruptionTarget",
            "status" => "True",
            "reason" => "DeletionByPodGC",
            "message" => message,
            "lastTransitionTime" => time::format_seconds(now.seconds),
        };
        if let Some(generation) = pod.int("metadata.generation") {
            condition.set("observedGeneration", generation);
        }
        status = conditions::status_patch(pod, condition);
        status.set("phase", "Failed");
    }
    // The uid protects another pod of the same name.
    let metadata = tree! { "uid" => pod.str("metadata.uid") };
    Some(tree! { "metadata" => metadata, "status" => status })
}

/// The finished pods beyond the limit: evicted ones first, then the oldest.
pub(super) fn too_many(mut ended: Vec<Arc<Tree>>, limit: usize) -> Vec<Arc<Tree>> {
    let rank = |pod: &Arc<Tree>| {
        let is_evicted = pod.str("status.phase") == "Failed" && pod.str("status.reason") == "Evicted";
        let created = pod.str("metadata.creationTimestamp").to_string();
        (!is_evicted, created, pod.str("metadata.name").to_string())
    };
    let beyond = ended.len().saturating_sub(limit);
    ended.sort_by_cached_key(rank);
    ended.truncate(beyond);
    ended
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    fn json(text: &str) -> Tree {
        decode(text.as_bytes()).expect("json")
    }

    #[test]
    fn deletes_orphaned_pods() {
        let now = Timestamp { seconds: 60, nanos: 0 };
        let running = json(r#"{"metadata":{"uid":"u","generation":2},"status":{"phase":"Running"}}"#);
        let mut deleted = running.clone();
        deleted.child("metadata").set("deletionTimestamp", "1970-01-01T00:00:00Z");
        let ended = json(r#"{"metadata":{"uid":"u"},"status":{"phase":"Succeeded"}}"#);
        let node = |taint: &str, ready: &str| {
            json(&format!(
                r#"{{"spec":{{"taints":[{{"key":"{taint}"}}]}},"status":{{"conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
            ))
        };
        let (out, back, fine) = (node(OUT_OF_SERVICE, "Unknown"), node(OUT_OF_SERVICE, "True"), node("x", "False"));
        assert_eq!(plan(&running, Node::None, now), Plan::Keep);
        assert_eq!(plan(&running, Node::There(&out), now), Plan::Keep);
        assert_eq!(plan(&deleted, Node::There(&fine), now), Plan::Keep);
        assert_eq!(plan(&deleted, Node::There(&back), now), Plan::Keep);
        let plain = json(r#"{"metadata":{"uid":"u"},"status":{"phase":"Failed"}}"#);
        assert_eq!(plan(&deleted, Node::None, now), Plan::Delete { status: Some(plain.clone()) });
        assert_eq!(plan(&deleted, Node::There(&out), now), Plan::Delete { status: Some(plain) });
        let disrupted = json(
            r#"{"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"}],"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC","message":"PodGC: node no longer exists","lastTransitionTime":"1970-01-01T00:01:00Z","observedGeneration":2}],"phase":"Failed"}}"#,
        );
        assert_eq!(plan(&running, Node::Gone, now), Plan::Delete { status: Some(disrupted) });
        assert_eq!(plan(&ended, Node::Gone, now), Plan::Delete { status: None });
    }

    #[test]
    fn deletes_evicted_and_oldest_pods_first() {
        let pod = |name: &str, reason: &str, second: i64| {
            let created = time::format_seconds(second);
            Arc::new(json(&format!(
                r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{created}"}},"status":{{"phase":"Failed","reason":"{reason}"}}}}"#
            )))
        };
        let pods = vec![pod("c", "", 3), pod("a", "", 1), pod("e", "Evicted", 9), pod("b", "", 1)];
        let names = |limit: usize| {
            let gone = too_many(pods.clone(), limit);
            gone.iter().map(|pod| pod.str("metadata.name").to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(4), "");
        assert_eq!(names(2), "e a");
        assert_eq!(names(0), "e a b c");
    }
}
