//! Indexes used by more than one controller. An index returns the values under which an object is found.

use api::Tree;

/// Indexes with the same name are the same.
#[derive(Debug, Clone, Copy)]
pub struct Index {
    pub name: &'static str,
    pub values: fn(&Tree) -> Vec<String>,
}

/// By the uid of the controlling owner.
pub const CONTROLLER: Index = Index { name: "controller", values: controller };
/// By the uid of each owner.
pub const OWNER: Index = Index { name: "owner", values: owners };
/// By `spec.nodeName`; empty for unscheduled pods.
pub const NODE: Index = Index { name: "node", values: |object| vec![object.str("spec.nodeName").to_string()] };
/// By each label in the format of [`label`]. Used by `Store::select`.
pub const LABELS: Index = Index { name: "labels", values: labels };

fn owners(object: &Tree) -> Vec<String> {
    object.list("metadata.ownerReferences").iter().map(|owner| owner.str("uid").to_string()).collect()
}

fn controller(object: &Tree) -> Vec<String> {
    let owners = object.list("metadata.ownerReferences").iter();
    owners.filter(|owner| owner.bool("controller")).map(|owner| owner.str("uid").to_string()).collect()
}

fn labels(object: &Tree) -> Vec<String> {
    let namespace = object.str("metadata.namespace");
    let labels = object.map("metadata.labels").iter();
    labels.map(|(key, value)| label(namespace, key, value.as_str().unwrap_or(""))).collect()
}

/// The value of [`LABELS`] for a label in a namespace.
pub fn label(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}
