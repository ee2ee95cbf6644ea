//! PodTopologySpread.

use std::collections::{BTreeMap, BTreeSet};

use api::Tree;
use api::selector::Selector;

use super::nodes::{matches_required, tolerates};
use super::{Case, MAX_SCORE, Verdict, by_name, label};

const HOSTNAME: &str = "kubernetes.io/hostname";

struct Constraint<'a> {
    max_skew: i64,
    key: &'a str,
    /// All must match.
    selectors: Vec<Selector>,
    min_domains: i64,
    honors_affinity: bool,
    honors_taints: bool,
}

impl Constraint<'_> {
    fn selects(&self, pod: &Tree) -> bool {
        self.selectors.iter().all(|selector| selector.matches_map(pod.map("metadata.labels")))
    }

    /// Whether the node and its pods count.
    fn includes(&self, pod: &Tree, node: &Tree) -> bool {
        (!self.honors_affinity || matches_required(pod, node)) && (!self.honors_taints || tolerates(pod, node))
    }

    fn count(&self, case: &Case<'_>, node: &Tree) -> i64 {
        let namespace = case.pod.str("metadata.namespace");
        let counts = |pod: &&Tree| {
            pod.str("metadata.namespace") == namespace
                && !pod.at("metadata").has("deletionTimestamp")
                && self.selects(pod)
        };
        case.world.pods_on(node.str("metadata.name")).filter(counts).count() as i64
    }
}

fn has_keys(node: &Tree, constraints: &[Constraint<'_>]) -> bool {
    constraints.iter().all(|constraint| label(node, constraint.key).is_some())
}

pub(crate) fn filter(case: &Case<'_>, node: &Tree) -> Verdict {
    let defaults = default_constraints(case);
    let constraints = constraints(case, &defaults, "DoNotSchedule");
    for constraint in &constraints {
        let Some(domain) = label(node, constraint.key) else {
            let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
            return Verdict::unresolvable(reason);
        };
        let counts = counts(case, &constraints, constraint);
        let few = (counts.len() as i64) < constraint.min_domains;
        let least = counts.values().min().copied().filter(|_| !few).unwrap_or(0);
        let own = i64::from(constraint.selects(case.pod));
        if counts.get(domain).copied().unwrap_or(0) + own - least > constraint.max_skew {
            return Verdict::unschedulable("node(s) didn't match pod topology spread constraints");
        }
    }
    Verdict::Fits
}

/// Matching pods by domain, over the nodes that count.
fn counts<'a>(case: &Case<'a>, all: &[Constraint<'_>], constraint: &Constraint<'_>) -> BTreeMap<&'a str, i64> {
    let mut counts = BTreeMap::new();
    let nodes = case.world.nodes.iter().filter(|node| has_keys(node, all) && constraint.includes(case.pod, node));
    for node in nodes {
        let domain = label(node, constraint.key).unwrap_or_default();
        *counts.entry(domain).or_default() += constraint.count(case, node);
    }
    counts
}

pub(crate) fn score(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    let defaults = default_constraints(case);
    let constraints = constraints(case, &defaults, "ScheduleAnyway");
    if constraints.is_empty() {
        return None;
    }
    // System default constraints also spread over hosts if there are no zones.
    let needs_all = !own_constraints(case).is_empty() || case.settings.default_constraints.is_some();
    let scored: Vec<bool> = nodes.iter().map(|node| !needs_all || has_keys(node, &constraints)).collect();
    let mut raw = vec![0.0; nodes.len()];
    for constraint in &constraints {
        let counts = soft_counts(case, constraint, needs_all.then_some(&constraints[..]));
        let weight = weight(constraint, nodes, &scored);
        for (at, node) in nodes.iter().enumerate() {
            if let Some(domain) = label(node, constraint.key) {
                let count = match constraint.key {
                    HOSTNAME => constraint.count(case, node),
                    _ => counts.get(domain).copied().unwrap_or(0),
                };
                raw[at] += count as f64 * weight + (constraint.max_skew - 1) as f64;
            }
        }
    }
    let rounded = raw.into_iter().zip(&scored).map(|(score, scored)| scored.then_some(score.round() as i64));
    Some(invert(rounded.collect()))
}

fn soft_counts<'a>(
    case: &Case<'a>,
    constraint: &Constraint<'_>,
    needed: Option<&[Constraint<'_>]>,
) -> BTreeMap<&'a str, i64> {
    let mut counts = BTreeMap::new();
    for node in &case.world.nodes {
        if needed.is_none_or(|needed| has_keys(node, needed)) && constraint.includes(case.pod, node) {
            let domain = label(node, constraint.key).unwrap_or_default();
            *counts.entry(domain).or_default() += constraint.count(case, node);
        }
    }
    counts
}

/// Topologies with few domains weigh more per pod, so that a large one does not dominate.
fn weight(constraint: &Constraint<'_>, nodes: &[&Tree], scored: &[bool]) -> f64 {
    let nodes = nodes.iter().zip(scored).filter(|(_, scored)| **scored).map(|(node, _)| node);
    let size = match constraint.key {
        HOSTNAME => nodes.count(),
        key => nodes.map(|node| label(node, key).unwrap_or_default()).collect::<BTreeSet<_>>().len(),
    };
    ((size + 2) as f64).ln()
}

/// Fewer pods score higher; nodes that are not scored get zero.
fn invert(scores: Vec<Option<i64>>) -> Vec<i64> {
    let least = scores.iter().flatten().min().copied().unwrap_or(0);
    let most = scores.iter().flatten().max().copied().unwrap_or(0);
    let turned = |score: Option<i64>| match score {
        None => 0,
        Some(_) if most == 0 => MAX_SCORE,
        Some(score) => MAX_SCORE * (most + least - score) / most,
    };
    scores.into_iter().map(turned).collect()
}

fn own_constraints<'a>(case: &Case<'a>) -> &'a [Tree] {
    case.pod.list("spec.topologySpreadConstraints")
}

fn constraints<'a>(case: &Case<'a>, defaults: &'a [Tree], action: &str) -> Vec<Constraint<'a>> {
    let own = own_constraints(case);
    let of_action = |constraint: &&Tree| constraint.str("whenUnsatisfiable") == action;
    if !own.is_empty() {
        return own.iter().filter(of_action).map(|tree| constraint(tree, own_selectors(case, tree))).collect();
    }
    let Some(selectors) = default_selectors(case) else { return Vec::new() };
    defaults.iter().filter(of_action).map(|tree| constraint(tree, selectors.clone())).collect()
}

fn constraint(tree: &Tree, selectors: Vec<Selector>) -> Constraint<'_> {
    Constraint {
        max_skew: tree.int("maxSkew").unwrap_or(1),
        key: tree.str("topologyKey"),
        selectors,
        min_domains: tree.int("minDomains").unwrap_or(1),
        honors_affinity: tree.str("nodeAffinityPolicy") != "Ignore",
        honors_taints: tree.str("nodeTaintsPolicy") == "Honor",
    }
}

fn own_selectors(case: &Case<'_>, tree: &Tree) -> Vec<Selector> {
    let mut selectors = vec![Selector::from_object(tree.at("labelSelector")).unwrap_or_else(|_| Selector::nothing())];
    let keys = tree.list("matchLabelKeys").iter().filter_map(Tree::as_str);
    selectors.extend(keys.filter_map(|key| Some(equals(key, label(case.pod, key)?))));
    selectors
}

fn equals(key: &str, value: &str) -> Selector {
    let mut map = api::tree::Map::new();
    map.insert(key, value);
    Selector::from_labels(&map)
}

fn default_constraints(case: &Case<'_>) -> Vec<Tree> {
    let system = |key: &str, skew: i64| {
        api::tree! { "topologyKey" => key, "maxSkew" => skew, "whenUnsatisfiable" => "ScheduleAnyway" }
    };
    let systems = || vec![system(HOSTNAME, 3), system("topology.kubernetes.io/zone", 5)];
    case.settings.default_constraints.clone().unwrap_or_else(systems)
}

/// The selectors of the pod's services and owner. None if there are none.
fn default_selectors(case: &Case<'_>) -> Option<Vec<Selector>> {
    let labels = case.pod.map("metadata.labels");
    let is_beside = |object: &&Tree| object.str("metadata.namespace") == case.pod.str("metadata.namespace");
    let services = case.world.services.iter().filter(is_beside).map(|service| service.map("spec.selector"));
    let services = services.filter(|map| Selector::from_labels(map).matches_map(labels));
    let mut merged = api::tree::Map::new();
    for (key, value) in services.flat_map(|map| map.iter()) {
        merged.insert(key, value.clone());
    }
    let mut selectors = Vec::new();
    if let Some(owner) = case.pod.list("metadata.ownerReferences").iter().find(|owner| owner.bool("controller")) {
        let name = owner.str("name");
        let beside = |objects: &[Tree]| -> Option<Tree> {
            by_name(&objects.iter().filter(is_beside).cloned().collect::<Vec<_>>(), name).cloned()
        };
        match owner.str("kind") {
            "ReplicationController" => {
                let found = beside(&case.world.replication_controllers).unwrap_or_default();
                for (key, value) in found.map("spec.selector").iter() {
                    merged.insert(key, value.clone());
                }
            }
            "ReplicaSet" => selectors.extend(beside(&case.world.replica_sets).and_then(|set| owner_selector(&set))),
            "StatefulSet" => selectors.extend(beside(&case.world.stateful_sets).and_then(|set| owner_selector(&set))),
            _ => {}
        }
    }
    selectors.push(Selector::from_labels(&merged));
    (!selectors.iter().all(Selector::is_everything)).then_some(selectors)
}

fn owner_selector(owner: &Tree) -> Option<Selector> {
    Selector::from_object(owner.at("spec.selector")).ok().filter(|selector| !selector.is_nothing())
}
