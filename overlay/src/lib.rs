//! The pod network between nodes: every node has routes to the pods of all others.
//!
//! `config` is the network of the cluster, in flannel's form. `model` reads Nodes as plain values. `plan` decides, as a
//! pure function, how the pods of each node are reached: through a VXLAN device, or directly where nodes share a link.
//! `kernel` applies the plan. `runner` connects all of this to the API. Packets and annotations of Nodes are flannel's,
//! so that both can be in one cluster. Nothing here knows the API server, the kubelet or the container runtime.

#![warn(unreachable_pub)]

pub mod config;
pub mod kernel;
pub mod model;
pub mod plan;
pub mod runner;

pub use config::Config;
pub use kernel::cleanup;
pub use runner::{Environment, Handle, start};
