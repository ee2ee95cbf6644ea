//! The one list of plugins, in the order in which they are called at each point, with their weights.

use std::sync::Arc;

use super::{
    default_binder, dynamic_resources, image_locality, inter_pod_affinity, node_affinity, node_declared_features,
    node_name, node_ports, node_unschedulable, pod_topology_spread, priority_sort, scheduling_gates, taint_toleration,
    volume_binding, volumes,
};
use crate::config::Args;
use crate::framework::Plugin;
use crate::profile::{Enabled, Profile};

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A plugin on the list.
pub struct Listed {
    pub name: &'static str,
    /// What its scores count by default.
    pub weight: i64,
    pub make: fn(&Args) -> Arc<dyn Plugin>,
}

/// The cheap ones first: the first refusal ends the look at a node.
pub const PLUGINS: &[Listed] = &[
    Listed { name: "SchedulingGates", weight: 0, make: |_| Arc::new(scheduling_gates::SchedulingGates) },
    Listed { name: "PrioritySort", weight: 0, make: |_| Arc::new(priority_sort::PrioritySort) },
    Listed { name: "NodeName", weight: 0, make: |_| Arc::new(node_name::NodeName) },
    Listed { name: "NodeUnschedulable", weight: 0, make: |_| Arc::new(node_unschedulable::NodeUnschedulable) },
    Listed { name: "TaintToleration", weight: 3, make: |_| Arc::new(taint_toleration::TaintToleration) },
    Listed {
        name: "NodeAffinity",
        weight: 2,
        make: |args| Arc::new(node_affinity::NodeAffinity::with_added(&args.added_affinity)),
    },
    Listed { name: "NodePorts", weight: 0, make: |_| Arc::new(node_ports::NodePorts) },
    Listed { name: "NodeResourcesFit", weight: 1, make: |args| Arc::new(args.fit.clone()) },
    Listed { name: "VolumeRestrictions", weight: 0, make: |_| Arc::new(volumes::restrictions::VolumeRestrictions) },
    Listed { name: "NodeVolumeLimits", weight: 0, make: |_| Arc::new(volumes::limits::NodeVolumeLimits) },
    Listed {
        name: "VolumeBinding",
        weight: 0,
        make: |args| Arc::new(volume_binding::VolumeBinding::new(args.bind_timeout, args.shared.volumes.clone())),
    },
    Listed { name: "VolumeZone", weight: 0, make: |_| Arc::new(volumes::zone::VolumeZone) },
    Listed {
        name: "PodTopologySpread",
        weight: 2,
        make: |args| Arc::new(pod_topology_spread::PodTopologySpread::new(args.default_constraints.as_deref())),
    },
    Listed {
        name: "InterPodAffinity",
        weight: 2,
        make: |args| {
            Arc::new(inter_pod_affinity::InterPodAffinity::new(
                args.hard_pod_affinity_weight,
                args.ignore_preferred_terms_of_existing_pods,
            ))
        },
    },
    Listed { name: "DynamicResources", weight: 2, make: |_| Arc::new(dynamic_resources::DynamicResources) },
    Listed { name: "DefaultPreemption", weight: 0, make: |args| Arc::new(args.preemption.clone()) },
    Listed {
        name: "NodeResourcesBalancedAllocation",
        weight: 1,
        make: |args| Arc::new(args.balanced_allocation.clone()),
    },
    Listed { name: "ImageLocality", weight: 1, make: |_| Arc::new(image_locality::ImageLocality) },
    Listed { name: "DefaultBinder", weight: 0, make: |_| Arc::new(default_binder::DefaultBinder) },
    Listed {
        name: "NodeDeclaredFeatures",
        weight: 0,
        make: |_| Arc::new(node_declared_features::NodeDeclaredFeatures),
    },
];

/// All plugins with upstream's weights.
pub fn default_profile(scheduler_name: &str) -> Profile {
    let args = Args::default();
    let enabled = |listed: &Listed| Enabled { plugin: (listed.make)(&args), weight: listed.weight };
    Profile::new(scheduler_name, PLUGINS.iter().map(enabled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::MOST_PLUGINS;

    #[test]
    fn plugins_are_listed_under_their_names() {
        for listed in PLUGINS {
            assert_eq!((listed.make)(&Args::default()).name(), listed.name);
        }
        assert!(PLUGINS.len() <= MOST_PLUGINS);
    }
}
