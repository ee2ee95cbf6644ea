//! The plugins, a file each.

pub mod list;

mod default_binder;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod priority_sort;
mod scheduling_gates;
