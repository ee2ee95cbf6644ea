//! The one list of plugins, in the order in which they are called at each point, with their weights.

use std::sync::Arc;

use super::{
    default_binder, default_preemption, dynamic_resources, image_locality, inter_pod_affinity, node_affinity,
    node_declared_features, node_name, node_ports, node_resources_balanced_allocation, node_resources_fit,
    node_unschedulable, pod_topology_spread, priority_sort, scheduling_gates, taint_toleration, volume_binding,
    volumes,
};
use crate::framework::Plugin;
use crate::profile::{Enabled, Profile};

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A plugin on the list.
pub struct Listed {
    pub name: &'static str,
    /// What its scores count by default.
    pub weight: i64,
    pub make: fn() -> Arc<dyn Plugin>,
}

/// The cheap ones first: the first refusal ends the look at a node.
pub const PLUGINS: &[Listed] = &[
    Listed { name: "SchedulingGates", weight: 0, make: || Arc::new(scheduling_gates::SchedulingGates) },
    Listed { name: "PrioritySort", weight: 0, make: || Arc::new(priority_sort::PrioritySort) },
    Listed { name: "NodeName", weight: 0, make: || Arc::new(node_name::NodeName) },
    Listed { name: "NodeUnschedulable", weight: 0, make: || Arc::new(node_unschedulable::NodeUnschedulable) },
    Listed { name: "TaintToleration", weight: 3, make: || Arc::new(taint_toleration::TaintToleration) },
    Listed { name: "NodeAffinity", weight: 2, make: || Arc::new(node_affinity::NodeAffinity::default()) },
    Listed { name: "NodePorts", weight: 0, make: || Arc::new(node_ports::NodePorts) },
    Listed { name: "NodeResourcesFit", weight: 1, make: || Arc::new(node_resources_fit::NodeResourcesFit::default()) },
    Listed { name: "VolumeRestrictions", weight: 0, make: || Arc::new(volumes::restrictions::VolumeRestrictions) },
    Listed { name: "NodeVolumeLimits", weight: 0, make: || Arc::new(volumes::limits::NodeVolumeLimits) },
    Listed { name: "VolumeBinding", weight: 0, make: || Arc::new(volume_binding::VolumeBinding::default()) },
    Listed { name: "VolumeZone", weight: 0, make: || Arc::new(volumes::zone::VolumeZone) },
    Listed {
        name: "PodTopologySpread",
        weight: 2,
        make: || Arc::new(pod_topology_spread::PodTopologySpread::default()),
    },
    Listed { name: "InterPodAffinity", weight: 2, make: || Arc::new(inter_pod_affinity::InterPodAffinity::default()) },
    Listed { name: "DynamicResources", weight: 2, make: || Arc::new(dynamic_resources::DynamicResources) },
    Listed {
        name: "DefaultPreemption",
        weight: 0,
        make: || Arc::new(default_preemption::DefaultPreemption::default()),
    },
    Listed {
        name: "NodeResourcesBalancedAllocation",
        weight: 1,
        make: || Arc::new(node_resources_balanced_allocation::NodeResourcesBalancedAllocation::default()),
    },
    Listed { name: "ImageLocality", weight: 1, make: || Arc::new(image_locality::ImageLocality) },
    Listed { name: "DefaultBinder", weight: 0, make: || Arc::new(default_binder::DefaultBinder) },
    Listed { name: "NodeDeclaredFeatures", weight: 0, make: || Arc::new(node_declared_features::NodeDeclaredFeatures) },
];

/// All plugins with upstream's weights.
pub fn default_profile(scheduler_name: &str) -> Profile {
    let enabled = |listed: &Listed| Enabled { plugin: (listed.make)(), weight: listed.weight };
    Profile::new(scheduler_name, PLUGINS.iter().map(enabled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::MOST_PLUGINS;

    #[test]
    fn plugins_are_listed_under_their_names() {
        for listed in PLUGINS {
            assert_eq!((listed.make)().name(), listed.name);
        }
        assert!(PLUGINS.len() <= MOST_PLUGINS);
    }
}
