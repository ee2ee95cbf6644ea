//! The list of plugins in call order, with their weights.

use std::sync::Arc;

use super::{
    default_binder, dynamic_resources, image_locality, inter_pod_affinity, node_affinity, node_declared_features,
    node_name, node_ports, node_unschedulable, pod_topology_spread, priority_sort, scheduling_gates, taint_toleration,
    volume_binding, volumes,
};
use crate::framework::{EnabledPlugin, Plugin, Profile};
use crate::plugins::args::Args;

/// The name of the default scheduler.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A row of the list.
pub(crate) struct PluginEntry {
    pub name: &'static str,
    /// The default weight of its scores.
    pub weight: i64,
    pub make: fn(&Args) -> Arc<dyn Plugin>,
}

/// Cheap plugins first: the first rejection ends the evaluation of a node.
pub(crate) const PLUGINS: &[PluginEntry] = &[
    PluginEntry { name: "SchedulingGates", weight: 0, make: |_| Arc::new(scheduling_gates::SchedulingGates) },
    PluginEntry { name: "PrioritySort", weight: 0, make: |_| Arc::new(priority_sort::PrioritySort) },
    PluginEntry { name: "NodeName", weight: 0, make: |_| Arc::new(node_name::NodeName) },
    PluginEntry { name: "NodeUnschedulable", weight: 0, make: |_| Arc::new(node_unschedulable::NodeUnschedulable) },
    PluginEntry { name: "TaintToleration", weight: 3, make: |_| Arc::new(taint_toleration::TaintToleration) },
    PluginEntry {
        name: "NodeAffinity",
        weight: 2,
        make: |args| Arc::new(node_affinity::NodeAffinity::with_added(&args.added_affinity)),
    },
    PluginEntry { name: "NodePorts", weight: 0, make: |_| Arc::new(node_ports::NodePorts) },
    PluginEntry { name: "NodeResourcesFit", weight: 1, make: |args| Arc::new(args.fit.clone()) },
    PluginEntry {
        name: "VolumeRestrictions",
        weight: 0,
        make: |_| Arc::new(volumes::restrictions::VolumeRestrictions),
    },
    PluginEntry { name: "NodeVolumeLimits", weight: 0, make: |_| Arc::new(volumes::limits::NodeVolumeLimits) },
    PluginEntry {
        name: "VolumeBinding",
        weight: 0,
        make: |args| Arc::new(volume_binding::VolumeBinding::new(args.bind_timeout, args.shared.volumes.clone())),
    },
    PluginEntry { name: "VolumeZone", weight: 0, make: |_| Arc::new(volumes::zone::VolumeZone) },
    PluginEntry {
        name: "PodTopologySpread",
        weight: 2,
        make: |args| Arc::new(pod_topology_spread::PodTopologySpread::new(args.default_constraints.as_deref())),
    },
    PluginEntry {
        name: "InterPodAffinity",
        weight: 2,
        make: |args| {
            Arc::new(inter_pod_affinity::InterPodAffinity::new(
                args.hard_pod_affinity_weight,
                args.ignore_preferred_terms_of_existing_pods,
            ))
        },
    },
    PluginEntry {
        name: "DynamicResources",
        weight: 2,
        make: |args| {
            let devices = args.shared.devices.clone();
            Arc::new(dynamic_resources::DynamicResources::new(devices, args.device_binding_timeout))
        },
    },
    PluginEntry { name: "DefaultPreemption", weight: 0, make: |args| Arc::new(args.preemption.clone()) },
    PluginEntry {
        name: "NodeResourcesBalancedAllocation",
        weight: 1,
        make: |args| Arc::new(args.balanced_allocation.clone()),
    },
    PluginEntry { name: "ImageLocality", weight: 1, make: |_| Arc::new(image_locality::ImageLocality) },
    PluginEntry { name: "DefaultBinder", weight: 0, make: |_| Arc::new(default_binder::DefaultBinder) },
    PluginEntry {
        name: "NodeDeclaredFeatures",
        weight: 0,
        make: |_| Arc::new(node_declared_features::NodeDeclaredFeatures),
    },
];

/// All plugins with upstream's weights.
pub(crate) fn default_profile(scheduler_name: &str) -> Profile {
    let args = Args::default();
    let enabled = |listed: &PluginEntry| EnabledPlugin { plugin: (listed.make)(&args), weight: listed.weight };
    Profile::new(scheduler_name, PLUGINS.iter().map(enabled).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::MOST_PLUGINS;

    #[test]
    fn listed_names_match() {
        for listed in PLUGINS {
            assert_eq!((listed.make)(&Args::default()).name(), listed.name);
        }
        assert!(PLUGINS.len() <= MOST_PLUGINS);
    }
}
