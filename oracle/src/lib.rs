//! The reference implementation of every plugin, simple and slow: directly on API objects, without cache, index or
//! state. The real plugins are tested against it, and the benchmark is compared with it.

#![warn(unreachable_pub)]

mod affinity;
mod binding;
mod list;
mod nodes;
mod preempt;
mod requests;
mod resources;
mod spread;
mod volumes;

use api::Tree;
use api::quantity::Quantity;

pub use list::{PLUGINS, Plugin, find};
pub use preempt::{find_needless_victims, find_wrong_victims};
pub use requests::{Amounts, allocatable, requests, used};

/// The highest score.
pub const MAX_SCORE: i64 = 100;

/// Every object that a decision may depend on.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    pub nodes: Vec<Tree>,
    /// Pods with a `spec.nodeName` are assigned to that node.
    pub pods: Vec<Tree>,
    pub namespaces: Vec<Tree>,
    pub services: Vec<Tree>,
    pub replication_controllers: Vec<Tree>,
    pub replica_sets: Vec<Tree>,
    pub stateful_sets: Vec<Tree>,
    pub claims: Vec<Tree>,
    pub volumes: Vec<Tree>,
    pub classes: Vec<Tree>,
    pub csi_nodes: Vec<Tree>,
    pub csi_drivers: Vec<Tree>,
    pub capacities: Vec<Tree>,
    pub attachments: Vec<Tree>,
}

impl ClusterState {
    /// The pods on a node that have not finished.
    pub(crate) fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Tree> {
        self.pods.iter().filter(move |pod| pod.str("spec.nodeName") == node && !is_done(pod))
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&Tree> {
        by_name(&self.nodes, name)
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<&Tree> {
        self.claims
            .iter()
            .find(|claim| claim.str("metadata.namespace") == namespace && claim.str("metadata.name") == name)
    }
}

/// The plugin arguments of a profile.
#[derive(Debug, Clone)]
pub struct Settings {
    pub strategy: Strategy,
    /// The scored resources with their weights.
    pub fit_resources: Vec<(String, i64)>,
    pub ignored_resources: Vec<String>,
    pub ignored_resource_groups: Vec<String>,
    pub balanced_resources: Vec<String>,
    /// Node affinity that applies to every pod of the profile.
    pub added_affinity: Tree,
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// The constraints of pods without own ones; `None` for the system defaults.
    pub default_constraints: Option<Vec<Tree>>,
}

/// How NodeResourcesFit scores nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points of utilization in percent and score up to 10.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Default for Settings {
    fn default() -> Settings {
        let both = || vec![("cpu".to_string(), 1), ("memory".to_string(), 1)];
        Settings {
            strategy: Strategy::LeastAllocated,
            fit_resources: both(),
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            balanced_resources: both().into_iter().map(|(name, _)| name).collect(),
            added_affinity: Tree::Null,
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            default_constraints: None,
        }
    }
}

/// One pod to schedule.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub world: &'a ClusterState,
    pub settings: &'a Settings,
    pub pod: &'a Tree,
}

/// The result of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Fits,
    /// Preempting other pods may help.
    Unschedulable(Vec<String>),
    /// Preemption does not help.
    Unresolvable(Vec<String>),
}

impl Verdict {
    fn unschedulable(reason: &str) -> Verdict {
        Verdict::Unschedulable(vec![reason.to_string()])
    }

    fn unresolvable(reason: impl Into<String>) -> Verdict {
        Verdict::Unresolvable(vec![reason.into()])
    }

    fn fits_or(fits: bool, otherwise: impl FnOnce() -> Verdict) -> Verdict {
        if fits { Verdict::Fits } else { otherwise() }
    }
}

impl<'a> Case<'a> {
    /// The first plugin that rejects a node, with its reasons.
    pub fn rejection(&self, node: &Tree) -> Option<(&'static str, Verdict)> {
        let filters = PLUGINS.iter().filter_map(|plugin| plugin.filter.map(|filter| (plugin.name, filter)));
        filters.map(|(name, filter)| (name, filter(self, node))).find(|(_, verdict)| *verdict != Verdict::Fits)
    }

    /// Whether all plugins accept a node.
    pub fn fits(&self, node: &Tree) -> bool {
        self.rejection(node).is_none()
    }

    /// The nodes that all plugins accept.
    pub fn feasible(&self) -> Vec<&'a Tree> {
        self.world.nodes.iter().filter(|node| self.fits(node)).collect()
    }

    /// The weighted sum of all scores for each of the nodes.
    pub fn totals(&self, nodes: &[&Tree]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        for plugin in PLUGINS {
            let scores = plugin.score.and_then(|score| score(self, nodes));
            for (total, score) in totals.iter_mut().zip(scores.unwrap_or_default()) {
                *total += score * plugin.weight;
            }
        }
        totals
    }

    /// The names of the highest scoring nodes; empty if none is feasible.
    pub fn best(&self) -> Vec<&'a str> {
        let nodes = self.feasible();
        let totals = self.totals(&nodes);
        let most = totals.iter().max().copied();
        let best = nodes.iter().zip(&totals).filter(|(_, total)| Some(**total) == most);
        best.map(|(node, _)| node.str("metadata.name")).collect()
    }
}

fn is_done(pod: &Tree) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

fn by_name<'a>(objects: &'a [Tree], name: &str) -> Option<&'a Tree> {
    objects.iter().find(|object| object.str("metadata.name") == name)
}

fn label<'a>(object: &'a Tree, key: &str) -> Option<&'a str> {
    object.map("metadata.labels").get(key).and_then(Tree::as_str)
}

/// A quantity as text or number.
fn quantity(value: &Tree) -> Quantity {
    match value {
        Tree::Int(value) => Quantity::new(*value, api::quantity::Format::DecimalSI),
        Tree::Str(text) => Quantity::parse(text).unwrap_or_default(),
        _ => Quantity::default(),
    }
}

/// Scales so that the largest becomes the highest score, or the lowest if `reverse`.
fn normalize(scores: Vec<i64>, reverse: bool) -> Vec<i64> {
    let most = scores.iter().max().copied().unwrap_or(0);
    let scale = |score: i64| if most == 0 { 0 } else { MAX_SCORE * score / most };
    let turn = |score: i64| if reverse { MAX_SCORE - score } else { score };
    scores.into_iter().map(|score| turn(scale(score))).collect()
}

#[cfg(test)]
mod tests;
