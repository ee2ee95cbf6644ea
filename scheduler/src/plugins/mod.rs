//! The plugins, a file each.

pub mod list;

mod default_binder;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volumes;
