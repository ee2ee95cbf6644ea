//! The filter and score plugins in order, with their default weights.

use api::Tree;

use super::{Case, Verdict, affinity, binding, nodes, resources, spread, volumes};

/// A reference implementation of a plugin.
pub struct Plugin {
    pub name: &'static str,
    pub weight: i64,
    pub filter: Option<fn(&Case<'_>, &Tree) -> Verdict>,
    /// A score for each node; None if the plugin skips the pod.
    pub score: Option<Score>,
}

pub(crate) type Score = fn(&Case<'_>, &[&Tree]) -> Option<Vec<i64>>;

const fn filter(name: &'static str, filter: fn(&Case<'_>, &Tree) -> Verdict) -> Plugin {
    Plugin { name, weight: 0, filter: Some(filter), score: None }
}

const fn score(name: &'static str, weight: i64, score: Score) -> Plugin {
    Plugin { name, weight, filter: None, score: Some(score) }
}

impl Plugin {
    const fn scored(self, weight: i64, score: Score) -> Plugin {
        Plugin { weight, score: Some(score), ..self }
    }
}

/// All plugins.
pub const PLUGINS: &[Plugin] = &[
    filter("NodeName", nodes::node_name),
    filter("NodeUnschedulable", nodes::node_unschedulable),
    filter("TaintToleration", nodes::taint_toleration).scored(3, nodes::score_taints),
    filter("NodeAffinity", nodes::node_affinity).scored(2, nodes::score_affinity),
    filter("NodePorts", nodes::node_ports),
    filter("NodeResourcesFit", resources::fit).scored(1, resources::score_fit),
    filter("VolumeRestrictions", volumes::restrictions),
    filter("NodeVolumeLimits", volumes::limits),
    filter("VolumeBinding", binding::volume_binding),
    filter("VolumeZone", volumes::zone),
    filter("PodTopologySpread", spread::filter).scored(2, spread::score),
    filter("InterPodAffinity", affinity::filter).scored(2, affinity::score),
    filter("DynamicResources", nodes::dynamic_resources),
    score("NodeResourcesBalancedAllocation", 1, resources::score_balance),
    score("ImageLocality", 1, nodes::score_images),
    filter("NodeDeclaredFeatures", nodes::declared_features),
];

/// The plugin of a name.
pub fn find(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}
