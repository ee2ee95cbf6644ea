//! What a pod is told of its place in the rotation of service proxies. A pod that answers for a service is told that
//! it does; one that ends is told once no proxy sends anything to it any more.

use api::time::{Timestamp, format_seconds};
use api::{Tree, tree};

use crate::support::conditions;

/// False while proxies may send requests to the pod, True once none does any more.
pub const OUT_OF_ROTATION: &str = "tiphys.io/OutOfRotation";
/// On the Node of a proxy that confirms: the highest resourceVersion of EndpointSlices that it has carried out.
pub const APPLIED: &str = "tiphys.io/endpoints-applied";

/// What a node's proxy has carried out; None where it does not confirm, or its node is not there to.
pub fn applied(node: &Tree) -> Option<u64> {
    let applied = node.map("metadata.annotations").str(APPLIED).parse().ok();
    applied.filter(|_| conditions::is_true(node, "Ready"))
}

/// The pods of a slice's endpoints as `NAMESPACE/NAME`, and whether proxies send requests to them.
pub fn standings(slice: &Tree) -> Vec<(String, bool)> {
    let one = |endpoint: &Tree| {
        let target = endpoint.at("targetRef");
        let namespace = match target.str("namespace") {
            "" => slice.str("metadata.namespace"),
            namespace => namespace,
        };
        let key = format!("{namespace}/{}", target.str("name"));
        (target.str("kind") == "Pod").then(|| (key, is_in_rotation(endpoint)))
    };
    slice.list("endpoints").iter().filter_map(one).collect()
}

/// An endpoint that ends counts as told of, even where its service sends requests to everybody.
fn is_in_rotation(endpoint: &Tree) -> bool {
    let conditions = endpoint.at("conditions");
    let is_ready = conditions.get("ready").and_then(Tree::as_bool).unwrap_or(true);
    is_ready && !conditions.bool("terminating")
}

/// What is known of a pod's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// A slice says that requests may be sent to it.
    pub in_rotation: bool,
    /// From which revision on all slices say otherwise; None while one does not.
    pub left_at: Option<u64>,
    /// What the slowest proxy has carried out; None where none confirms.
    pub applied: Option<u64>,
}

/// The condition to be written; None where there is nothing to tell.
pub fn plan(pod: &Tree, view: View, now: Timestamp) -> Option<Tree> {
    let said = conditions::get(pod, OUT_OF_ROTATION).map_or("", |condition| condition.str("status"));
    if !pod.at("metadata").has("deletionTimestamp") {
        let begins = view.in_rotation && view.applied.is_some() && said != "False";
        return begins.then(|| condition("False", "ProxiesConfirm", now));
    }
    if said != "False" {
        return None;
    }
    match (view.applied, view.left_at) {
        (None, _) => Some(condition("True", "NoProxyConfirms", now)),
        (Some(applied), Some(left_at)) if applied >= left_at => Some(condition("True", "Confirmed", now)),
        _ => None,
    }
}

fn condition(status: &str, reason: &str, now: Timestamp) -> Tree {
    tree! {
        "type" => OUT_OF_ROTATION, "status" => status, "reason" => reason,
        "lastTransitionTime" => format_seconds(now.seconds),
    }
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn read(text: &str) -> Tree {
        yaml::decode(text.as_bytes()).expect("an object")
    }

    #[test]
    fn endpoints_say_who_is_in_rotation() {
        let slice = read(
            "
metadata: {namespace: a}
endpoints:
- {targetRef: {kind: Pod, name: ready, namespace: a}, conditions: {ready: true}}
- {targetRef: {kind: Pod, name: silent}}
- {targetRef: {kind: Pod, name: unready, namespace: a}, conditions: {ready: false}}
- {targetRef: {kind: Pod, name: ends, namespace: a}, conditions: {ready: true, terminating: true}}
- {targetRef: {kind: Node, name: other}}
- {addresses: [10.0.0.1]}
",
        );
        let wanted = [("a/ready", true), ("a/silent", true), ("a/unready", false), ("a/ends", false)];
        assert_eq!(standings(&slice), wanted.map(|(key, is_in)| (key.to_string(), is_in)));
    }

    #[test]
    fn only_nodes_that_are_there_and_confirm_count() {
        let node = |value: &str, ready: &str| {
            let text = format!(
                "{{metadata: {{annotations: {{{APPLIED}: {value:?}}}}}, status: {{conditions: [{{type: Ready, status: {ready:?}}}]}}}}"
            );
            applied(&read(&text))
        };
        assert_eq!((node("7", "True"), node("7", "Unknown"), node("x", "True")), (Some(7), None, None));
        assert_eq!(applied(&read("{metadata: {}}")), None);
    }

    #[test]
    fn a_pod_is_told_when_it_begins_and_when_all_have_confirmed() {
        let pod = |deleted: bool, said: &str| {
            let meta = if deleted { "deletionTimestamp: x" } else { "name: p" };
            let said = match said {
                "" => String::new(),
                said => format!("{{type: {OUT_OF_ROTATION}, status: {said:?}}}"),
            };
            read(&format!("{{metadata: {{{meta}}}, status: {{conditions: [{said}]}}}}"))
        };
        // Deleted, what was said, in rotation, left at, applied; what is told.
        let cases = [
            (false, "", true, None, Some(3), "False ProxiesConfirm"),
            (false, "", true, None, None, ""),
            (false, "", false, Some(3), Some(3), ""),
            (false, "False", true, None, Some(3), ""),
            (false, "False", false, Some(3), Some(9), ""),
            (true, "False", true, None, Some(9), ""),
            (true, "False", false, Some(8), Some(7), ""),
            (true, "False", false, Some(8), Some(8), "True Confirmed"),
            (true, "False", true, None, None, "True NoProxyConfirms"),
            (true, "True", false, Some(8), Some(9), ""),
            (true, "", false, Some(8), Some(9), ""),
        ];
        for (deleted, said, in_rotation, left_at, applied, expected) in cases {
            let view = View { in_rotation, left_at, applied };
            let told = plan(&pod(deleted, said), view, Timestamp { seconds: 1, nanos: 0 });
            let told = told.map_or(String::new(), |told| format!("{} {}", told.str("status"), told.str("reason")));
            assert_eq!(told, expected, "{deleted} {said} {view:?}");
        }
    }
}
