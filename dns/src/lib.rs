//! The cluster DNS: answers the names of Services, endpoints and pods from an index that watches keep, and forwards all
//! other names. The crate is an ordinary API client, and independent of the kubelet and the service proxy.

#![warn(unreachable_pub)]

mod cache;
pub mod chain;
pub mod corefile;
pub mod directory;
pub mod forward;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod hosts;
pub mod message;
pub mod metrics;
pub mod server;
pub mod zone;

pub use server::{Cluster, Config, CorefileSource, DnsHandle, HttpEndpoints, Limits, Listen, Server, StartError};

/// The Corefile of a cluster without a ConfigMap `coredns`: that of kubeadm, and search paths in one round trip.
pub fn default_corefile(cluster_domain: &str) -> String {
    include_str!("Corefile").replace("cluster.local", cluster_domain)
}
