//! Decides the OutOfRotation condition of a pod: False while it is an endpoint of a service, True once no proxy sends
//! it requests any more.

use api::time::{Timestamp, format_seconds};
use api::{Tree, tree};

use crate::support::conditions;

/// False while proxies may send requests to the pod, True once no proxy does.
pub(super) const OUT_OF_ROTATION: &str = "tiphys.io/OutOfRotation";
/// On the Node of a confirming proxy: the highest resourceVersion of EndpointSlices that it has applied.
pub(super) const APPLIED: &str = "tiphys.io/endpoints-applied";

/// The revision applied by the node's proxy; None if it does not confirm or the node is not ready.
pub(super) fn applied(node: &Tree) -> Option<u64> {
    let applied = node.map("metadata.annotations").str(APPLIED).parse().ok();
    applied.filter(|_| conditions::is_true(node, "Ready"))
}

/// The pods of a slice as `NAMESPACE/NAME`, and whether proxies send them requests.
pub(crate) fn endpoint_states(slice: &Tree) -> Vec<(String, bool)> {
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

/// A terminating endpoint is out of rotation even if its service publishes not-ready addresses.
fn is_in_rotation(endpoint: &Tree) -> bool {
    let conditions = endpoint.at("conditions");
    let is_ready = conditions.get("ready").and_then(Tree::as_bool).unwrap_or(true);
    is_ready && !conditions.bool("terminating")
}

/// The observed state of a pod's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// Whether a slice lists the pod as serving.
    pub in_rotation: bool,
    /// The revision from which no slice lists the pod as serving; None while one does.
    pub left_at: Option<u64>,
    /// The lowest revision applied by a proxy; None if no proxy confirms.
    pub applied: Option<u64>,
}

/// The condition to write; None if nothing changes.
pub(super) fn plan(pod: &Tree, view: View, now: Timestamp) -> Option<Tree> {
    let current = conditions::get(pod, OUT_OF_ROTATION).map_or("", |condition| condition.str("status"));
    if !pod.at("metadata").has("deletionTimestamp") {
        let begins = view.in_rotation && view.applied.is_some() && current != "False";
        return begins.then(|| condition("False", "ProxiesConfirm", now));
    }
    if current != "False" {
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
    fn endpoint_conditions_decide_rotation() {
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
        let desired = [("a/ready", true), ("a/silent", true), ("a/unready", false), ("a/ends", false)];
        assert_eq!(endpoint_states(&slice), desired.map(|(key, is_in)| (key.to_string(), is_in)));
    }

    #[test]
    fn ignores_nodes_that_do_not_confirm() {
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
    fn sets_condition_when_serving_and_when_all_proxies_confirmed() {
        let pod = |deleted: bool, current: &str| {
            let meta = if deleted { "deletionTimestamp: x" } else { "name: p" };
            let current = match current {
                "" => String::new(),
                current => format!("{{type: {OUT_OF_ROTATION}, status: {current:?}}}"),
            };
            read(&format!("{{metadata: {{{meta}}}, status: {{conditions: [{current}]}}}}"))
        };
        // Deleted, current condition, in rotation, left at, applied; expected condition.
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
        for (deleted, current, in_rotation, left_at, applied, expected) in cases {
            let view = View { in_rotation, left_at, applied };
            let condition = plan(&pod(deleted, current), view, Timestamp { seconds: 1, nanos: 0 });
            let condition = condition
                .map_or(String::new(), |condition| format!("{} {}", condition.str("status"), condition.str("reason")));
            assert_eq!(condition, expected, "{deleted} {current} {view:?}");
        }
    }
}
