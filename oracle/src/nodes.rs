//! Plugins that depend only on the node and the pod.

use std::collections::BTreeSet;

use api::Tree;
use api::tree::Map;

use super::{Case, MAX_SCORE, Verdict, label, normalize};

pub(crate) fn node_name(case: &Case<'_>, node: &Tree) -> Verdict {
    let wanted = case.pod.str("spec.nodeName");
    Verdict::fits_or(wanted.is_empty() || wanted == node.str("metadata.name"), || {
        Verdict::unresolvable("node(s) didn't match the requested node name")
    })
}

pub(crate) fn node_unschedulable(case: &Case<'_>, node: &Tree) -> Verdict {
    let taint = api::tree! { "key" => "node.kubernetes.io/unschedulable", "effect" => "NoSchedule" };
    Verdict::fits_or(!node.bool("spec.unschedulable") || is_tolerated(case.pod, &taint), || {
        Verdict::unresolvable("node(s) were unschedulable")
    })
}

pub(crate) fn taint_toleration(case: &Case<'_>, node: &Tree) -> Verdict {
    Verdict::fits_or(tolerates(case.pod, node), || Verdict::unresolvable("node(s) had untolerated taint(s)"))
}

/// Whether the pod tolerates all NoSchedule and NoExecute taints.
pub(crate) fn tolerates(pod: &Tree, node: &Tree) -> bool {
    let strict = |taint: &&Tree| matches!(taint.str("effect"), "NoSchedule" | "NoExecute");
    node.list("spec.taints").iter().filter(strict).all(|taint| is_tolerated(pod, taint))
}

fn is_tolerated(pod: &Tree, taint: &Tree) -> bool {
    pod.list("spec.tolerations").iter().any(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Tree, taint: &Tree) -> bool {
    let (effect, key) = (toleration.str("effect"), toleration.str("key"));
    let same_effect = effect.is_empty() || effect == taint.str("effect");
    let same_key = key.is_empty() || key == taint.str("key");
    let exists = toleration.str("operator") == "Exists";
    same_effect && same_key && (exists || toleration.str("value") == taint.str("value"))
}

pub(crate) fn score_taints(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    let covered = |taint: &Tree| {
        let soft = |toleration: &&Tree| matches!(toleration.str("effect"), "" | "PreferNoSchedule");
        case.pod.list("spec.tolerations").iter().filter(soft).any(|toleration| covers(toleration, taint))
    };
    let is_bad = |taint: &&Tree| taint.str("effect") == "PreferNoSchedule" && !covered(taint);
    let bad = |node: &&Tree| node.list("spec.taints").iter().filter(is_bad).count() as i64;
    Some(normalize(nodes.iter().map(bad).collect(), true))
}

pub(crate) fn node_affinity(case: &Case<'_>, node: &Tree) -> Verdict {
    let added = case.settings.added_affinity.at("requiredDuringSchedulingIgnoredDuringExecution");
    if !added.is_null() && !selects(added, node) {
        return Verdict::unresolvable("node(s) didn't match scheduler-enforced node affinity");
    }
    Verdict::fits_or(matches_required(case.pod, node), || {
        Verdict::unresolvable("node(s) didn't match Pod's node affinity/selector")
    })
}

/// The pod's node selector and its required node affinity.
pub(crate) fn matches_required(pod: &Tree, node: &Tree) -> bool {
    let simple = pod.map("spec.nodeSelector");
    let required = pod.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    simple.iter().all(|(key, value)| label(node, key) == value.as_str())
        && (required.is_null() || selects(required, node))
}

/// Whether any term of a NodeSelector matches.
pub(crate) fn selects(selector: &Tree, node: &Tree) -> bool {
    selector.list("nodeSelectorTerms").iter().any(|term| matches_term(term, node))
}

/// A term without requirements matches nothing.
fn matches_term(term: &Tree, node: &Tree) -> bool {
    let (labels, fields) = (term.list("matchExpressions"), term.list("matchFields"));
    let name = |_: &str| Some(node.str("metadata.name"));
    (!labels.is_empty() || !fields.is_empty())
        && labels.iter().all(|requirement| holds(requirement, |key| label(node, key)))
        && fields.iter().all(|requirement| requirement.str("key") == "metadata.name" && holds(requirement, name))
}

fn holds<'a>(requirement: &Tree, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    let value = value(requirement.str("key"));
    let wanted = requirement.list("values");
    let listed = || value.is_some_and(|value| wanted.iter().any(|wanted| wanted.as_str() == Some(value)));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compare = |holds: fn(&i64, &i64) -> bool| {
        let (own, limit) = (number(value), number(wanted.first().and_then(Tree::as_str)));
        own.zip(limit).is_some_and(|(own, limit)| holds(&own, &limit))
    };
    match requirement.str("operator") {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

pub(crate) fn score_affinity(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let own = case.pod.at("spec.affinity.nodeAffinity").list(PREFERRED);
    let terms: Vec<&Tree> = own.iter().chain(case.settings.added_affinity.list(PREFERRED)).collect();
    if terms.is_empty() {
        return None;
    }
    let score = |node: &&Tree| {
        let matching = terms.iter().filter(|term| matches_term(term.at("preference"), node));
        matching.map(|term| term.int("weight").unwrap_or(0)).sum()
    };
    Some(normalize(nodes.iter().map(score).collect(), false))
}

pub(crate) fn node_ports(case: &Case<'_>, node: &Tree) -> Verdict {
    let taken: Vec<Port<'_>> = case.world.pods_on(node.str("metadata.name")).flat_map(ports).collect();
    let free = ports(case.pod).all(|port| !taken.iter().any(|other| port.conflicts_with(other)));
    Verdict::fits_or(free, || Verdict::unschedulable("node(s) didn't have free ports for the requested pod ports"))
}

struct Port<'a> {
    ip: &'a str,
    protocol: &'a str,
    number: i64,
}

impl Port<'_> {
    fn conflicts_with(&self, other: &Port<'_>) -> bool {
        let any = |port: &Port<'_>| port.ip == "0.0.0.0";
        let same_ip = self.ip == other.ip || any(self) || any(other);
        same_ip && self.protocol == other.protocol && self.number == other.number
    }
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// Of containers and sidecars.
fn ports(pod: &Tree) -> impl Iterator<Item = Port<'_>> {
    let staying = pod.list("spec.initContainers").iter().filter(|init| init.str("restartPolicy") == "Always");
    let all = pod.list("spec.containers").iter().chain(staying).flat_map(|container| container.list("ports"));
    let port = |port| -> Option<Port<'_>> {
        let port: &Tree = port;
        let number = port.int("hostPort").filter(|number| *number > 0)?;
        Some(Port { ip: or(port.str("hostIP"), "0.0.0.0"), protocol: or(port.str("protocol"), "TCP"), number })
    };
    all.filter_map(port)
}

/// Sizes of images that count: smaller ones are ignored, larger ones are capped.
const MIN_IMAGE: i64 = 23 * 1024 * 1024;
const MAX_IMAGE: i64 = 1000 * 1024 * 1024;

pub(crate) fn score_images(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    let images: Vec<String> = images(case.pod).map(with_tag).collect();
    let most = MAX_IMAGE * images.len() as i64;
    let score = |node: &&Tree| {
        let sum: i64 = images.iter().map(|image| image_score(case, node, image)).sum();
        MAX_SCORE * (sum.clamp(MIN_IMAGE, most.max(MIN_IMAGE)) - MIN_IMAGE) / (most - MIN_IMAGE)
    };
    Some(nodes.iter().map(score).collect())
}

fn images(pod: &Tree) -> impl Iterator<Item = &str> {
    let containers = pod.list("spec.initContainers").iter().chain(pod.list("spec.containers"));
    let volumes = pod.list("spec.volumes").iter().filter(|volume| volume.has("image"));
    containers.map(|container| container.str("image")).chain(volumes.map(|volume| volume.str("image.reference")))
}

/// A name without a tag gets `:latest`.
fn with_tag(image: &str) -> String {
    let is_tagged = image.rfind(':') > image.rfind('/');
    if is_tagged { image.to_string() } else { format!("{image}:latest") }
}

/// The score is weighted by the fraction of nodes that have the image.
fn image_score(case: &Case<'_>, node: &Tree, image: &str) -> i64 {
    let Some(size) = size_on(node, image) else { return 0 };
    let spread = case.world.nodes.iter().filter(|node| size_on(node, image).is_some()).count();
    (size as f64 * (spread as f64 / case.world.nodes.len() as f64)) as i64
}

fn size_on(node: &Tree, image: &str) -> Option<i64> {
    let named = |entry: &&Tree| entry.list("names").iter().any(|name| name.as_str() == Some(image));
    node.list("status.images").iter().find(named).map(|entry| entry.int("sizeBytes").unwrap_or(0))
}

pub(crate) fn dynamic_resources(case: &Case<'_>, _: &Tree) -> Verdict {
    // The random clusters have no claims.
    let missing = case.pod.list("spec.resourceClaims").first().map(|claim| claim.str("resourceClaimName"));
    Verdict::fits_or(missing.is_none(), || {
        Verdict::unresolvable(format!("resourceclaim.resource.k8s.io {:?} not found", missing.unwrap_or("")))
    })
}

pub(crate) fn declared_features(case: &Case<'_>, node: &Tree) -> Verdict {
    let declared: BTreeSet<&str> = node.list("status.declaredFeatures").iter().filter_map(Tree::as_str).collect();
    Verdict::fits_or(needed_features(case.pod).iter().all(|feature| declared.contains(feature)), || {
        Verdict::unresolvable("node(s) didn't match Pod's required features")
    })
}

fn needed_features(pod: &Tree) -> Vec<&'static str> {
    let rules = |container: &Tree| -> bool {
        container.list("restartPolicyRules").iter().any(|rule| rule.str("action") == "RestartAllContainers")
    };
    let mut containers = pod.list("spec.initContainers").iter().chain(pod.list("spec.containers"));
    let restarts_all = containers.any(rules);
    let spec: &Map = pod.map("spec");
    let shares_network = pod.bool("spec.hostNetwork") && spec.get("hostUsers").and_then(Tree::as_bool) == Some(false);
    let mut needed = Vec::new();
    needed.extend(restarts_all.then_some("RestartAllContainersOnContainerExits"));
    needed.extend(shares_network.then_some("UserNamespacesHostNetworkSupport"));
    needed
}
