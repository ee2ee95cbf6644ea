//! NetworkPolicy: which connections of this node's pods are allowed.
//!
//! `model` reads NetworkPolicies, Pods and Namespaces as plain values. `plan` decides, as a pure function, what the
//! node's nftables table contains. `table` is that table as plain data, with the difference between two of them;
//! `kernel` applies the difference in one transaction. `runner` connects all of this to the API. Nothing here depends
//! on the API server, the kubelet, the service proxy or the container runtime.

#![warn(unreachable_pub)]

pub mod kernel;
pub mod model;
pub mod plan;
pub mod runner;
pub mod table;

pub use runner::{Environment, NetworkPolicyHandle, PodError, PodInfo, PodReporter, cleanup, start};
