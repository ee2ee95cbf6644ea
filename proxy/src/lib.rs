//! The service proxy: forwards connections to the addresses of Services to their endpoints.
//!
//! `model` reads Services, EndpointSlices and the Node as plain values. `plan` decides what happens to packets, as a pure
//! function. A `backend` (nftables, iptables or userspace) applies the difference to the kernel in one transaction.
//! `proxier` holds the state of one proxy, `serve` has its health and metrics, and `runner` connects it to the API.
//! Nothing here depends on the API server, the kubelet or the container runtime.

#![warn(unreachable_pub)]

pub mod backend;
pub mod config;
pub mod model;
pub mod plan;
pub mod proxier;
pub mod runner;
mod serve;
