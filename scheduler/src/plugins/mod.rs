//! The plugins, one file each.

pub(crate) mod args;
pub(crate) mod list;

pub(crate) mod allocation;
mod budgets;
mod default_binder;
pub(crate) mod default_preemption;
pub(crate) mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
pub(crate) mod node_resources_balanced_allocation;
pub(crate) mod node_resources_fit;
mod node_unschedulable;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
pub(crate) mod volume_binding;
mod volumes;
