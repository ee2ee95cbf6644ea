//! Namespaces, priority classes and the ConfigMaps that publish facts about the server.

use api::{time, tree};

use super::{MANAGER, Object};
/// The namespaces in the order of their age.
pub(super) fn namespaces() -> Vec<Object> {
    let namespace = |name: &str| Object {
        group: "",
        version: "v1",
        plural: "namespaces",
        manager: MANAGER,
        tree: tree! { "kind" => "Namespace", "apiVersion" => "v1", "metadata" => tree! { "name" => name } },
    };
    ["kube-system", "kube-public", "default", "kube-node-lease"].map(namespace).into()
}

pub(crate) fn priority_classes() -> Vec<Object> {
    let class = |(name, value, description): (&str, i64, &str)| Object {
        group: "scheduling.k8s.io",
        version: "v1",
        plural: "priorityclasses",
        manager: MANAGER,
        tree: tree! {
            "kind" => "PriorityClass", "apiVersion" => "scheduling.k8s.io/v1", "metadata" => tree! { "name" => name },
            "value" => value, "description" => description,
        },
    };
    [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
    .map(class)
    .into()
}

/// Since when unused tokens are tracked.
pub(crate) fn token_tracking(now: i64) -> Object {
    let today = time::format_seconds(now).chars().take("2026-01-01".len()).collect::<String>();
    let name = "kube-apiserver-legacy-service-account-token-tracking";
    Object {
        group: "",
        version: "v1",
        plural: "configmaps",
        manager: MANAGER,
        tree: tree! {
            "kind" => "ConfigMap", "apiVersion" => "v1",
            "metadata" => tree! { "name" => name, "namespace" => "kube-system" },
            "data" => tree! { "since" => today },
        },
    }
}
