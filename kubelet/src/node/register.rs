//! The Node object at registration, and the changes of an existing one.

use api::{Map, Tree, tree};

use super::status_input::StatusInput;
use crate::config::{Config, Taint};

const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const PROVIDED_ADDRESS: &str = "alpha.kubernetes.io/provided-node-ip";

/// Labels that the kubelet keeps up to date. Other labels are set at registration, and belong to the administrator
/// afterwards.
pub const FOLLOWED: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The object, without a status.
pub(crate) fn object(config: &Config, input: &StatusInput) -> Tree {
    let mut metadata = tree! { "name" => config.node_name.as_str(), "labels" => labels(config, input) };
    let annotations = annotations(config);
    if !annotations.is_empty() {
        metadata.set("annotations", annotations);
    }
    let mut spec = tree! {};
    let taints = taints(config);
    if !taints.is_empty() {
        spec.set("taints", taints.iter().map(taint).collect::<Vec<_>>());
    }
    if !config.register_schedulable {
        spec.set("unschedulable", true);
    }
    if !config.provider_id.is_empty() {
        spec.set("providerID", config.provider_id.as_str());
    }
    tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => metadata, "spec" => spec }
}

/// Configured labels override detected ones.
fn labels(config: &Config, input: &StatusInput) -> Map {
    let architecture = input.machine.architecture.as_str();
    let own = [
        ("beta.kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("kubernetes.io/hostname", &config.hostname),
        ("kubernetes.io/os", "linux"),
    ];
    let configured = config.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut labels = Map::new();
    own.into_iter().chain(configured).for_each(|(key, value)| drop(labels.insert(key, value)));
    labels
}

fn annotations(config: &Config) -> Map {
    let mut annotations = Map::new();
    if config.enable_controller_attach_detach {
        annotations.insert(ATTACHED_BY_CONTROLLER, "true");
    }
    if config.external_cloud_provider && !config.node_ips.is_empty() {
        let addresses: Vec<String> = config.node_ips.iter().map(ToString::to_string).collect();
        annotations.insert(PROVIDED_ADDRESS, addresses.join(","));
    }
    annotations
}

fn taints(config: &Config) -> Vec<Taint> {
    let no_schedule = |key: &str, value: &str| Taint {
        key: key.to_string(),
        value: value.to_string(),
        effect: "NoSchedule".to_string(),
    };
    let mut taints = config.register_with_taints.clone();
    if !config.register_schedulable {
        taints.push(no_schedule("node.kubernetes.io/unschedulable", ""));
    }
    if config.external_cloud_provider {
        taints.push(no_schedule("node.cloudprovider.kubernetes.io/uninitialized", "true"));
    }
    taints
}

fn taint(taint: &Taint) -> Tree {
    let mut tree = tree! { "key" => taint.key.as_str(), "effect" => taint.effect.as_str() };
    if !taint.value.is_empty() {
        tree.set("value", taint.value.as_str());
    }
    tree
}

/// A patch for the metadata of an existing node; None if nothing differs.
pub(crate) fn reconcile(wanted: &Tree, found: &Tree) -> Option<Tree> {
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    let (want, have) = (wanted.map("metadata.labels"), found.map("metadata.labels"));
    for key in FOLLOWED.into_iter().filter(|key| want.contains(key) && want.get(key) != have.get(key)) {
        labels.insert(key, want.str(key));
    }
    let (want, have) = (wanted.map("metadata.annotations"), found.map("metadata.annotations"));
    for key in [ATTACHED_BY_CONTROLLER, PROVIDED_ADDRESS].into_iter().filter(|key| want.get(key) != have.get(key)) {
        annotations.insert(key, want.get(key).cloned().unwrap_or(Tree::Null));
    }
    let mut metadata = tree! {};
    for (field, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata.set(field, map);
        }
    }
    (!metadata.as_map().is_some_and(Map::is_empty)).then(|| tree! { "metadata" => metadata })
}
