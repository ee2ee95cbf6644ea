//! Builds the pods of a DaemonSet: each is bound to its node by affinity and tolerates the node's taints.

use std::sync::Arc;

use api::{Tree, list, tree};

use crate::support::{nodes, pods};

pub(super) const HASH: &str = "controller-revision-hash";
const GENERATION: &str = "pod-template-generation";
pub(super) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Taints set by the kubelet and the node controllers, which daemon pods tolerate.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// A daemon pod on the host network may be what provides the node's network.
const WITHOUT_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The pod for a node, with the hash of its revision.
pub(super) fn build(set: &Tree, node: &str, hash: &str) -> Tree {
    let mut pod = pods::from_template(set.at("spec.template"), set);
    let labels = pod.child("metadata.labels");
    if let Some(generation) = template_generation(set) {
        labels.set(GENERATION, generation.to_string());
    }
    labels.set(HASH, hash);
    let tolerations = tolerations(set);
    let spec = pod.child("spec");
    spec.set("tolerations", tolerations);
    let field = tree! { "key" => "metadata.name", "operator" => "In", "values" => list![node] };
    let required = spec.child("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    required.set("nodeSelectorTerms", list![tree! { "matchFields" => list![field] }]);
    pod
}

fn tolerations(set: &Tree) -> Vec<Tree> {
    let spec = set.at("spec.template.spec");
    let mut tolerations = spec.list("tolerations").to_vec();
    let without_network = spec.bool("hostNetwork").then_some(WITHOUT_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(without_network) {
        let wanted = tree! { "key" => key, "operator" => "Exists", "effect" => effect };
        let is_same = |there: &Tree| {
            let value = there.str("value").is_empty();
            value && ["key", "operator", "effect"].iter().all(|field| there.str(field) == wanted.str(field))
        };
        match tolerations.iter_mut().find(|there| is_same(there)) {
            // An existing `tolerationSeconds` is overridden.
            Some(there) => *there = wanted,
            None => tolerations.push(wanted),
        }
    }
    tolerations
}

/// Whether a node should run a pod, and whether an existing pod may continue to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeFit {
    pub should_run: bool,
    pub should_continue_running: bool,
}

pub(super) fn fits(set: &Tree, nodes: &[Arc<Tree>]) -> Vec<NodeFit> {
    let tolerations = tolerations(set);
    nodes.iter().map(|node| fit(set.at("spec.template.spec"), &tolerations, node)).collect()
}

fn fit(spec: &Tree, tolerations: &[Tree], node: &Tree) -> NodeFit {
    if !nodes::is_wanted(spec, node) {
        return NodeFit { should_run: false, should_continue_running: false };
    }
    let should_run = !nodes::has_untolerated_taint(tolerations, node, &["NoSchedule", "NoExecute"]);
    NodeFit {
        should_run,
        should_continue_running: should_run || !nodes::has_untolerated_taint(tolerations, node, &["NoExecute"]),
    }
}

/// The node that a pod is bound to or meant for.
pub(super) fn target(pod: &Tree) -> &str {
    let node = pod.str("spec.nodeName");
    if !node.is_empty() {
        return node;
    }
    let required = pod.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    let fields = required.list("nodeSelectorTerms").iter().flat_map(|term| term.list("matchFields"));
    let mut names = fields.filter(|field| field.str("key") == "metadata.name" && field.str("operator") == "In");
    names.find_map(|field| field.list("values").first()).and_then(Tree::as_str).unwrap_or("")
}

pub(crate) fn is_updated(set: &Tree, pod: &Tree, hash: &str) -> bool {
    let labels = pod.map("metadata.labels");
    let by_generation = template_generation(set).is_some_and(|number| labels.str(GENERATION) == number.to_string());
    by_generation || (!hash.is_empty() && labels.str(HASH) == hash)
}

fn template_generation(set: &Tree) -> Option<i64> {
    set.map("metadata.annotations").str(TEMPLATE_GENERATION).parse().ok()
}
