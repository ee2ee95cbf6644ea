//! The plugins, a file each.

pub mod list;

pub mod allocation;
mod budgets;
mod default_binder;
pub mod default_preemption;
mod node_name;
mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
mod node_unschedulable;
mod priority_sort;
mod scheduling_gates;
