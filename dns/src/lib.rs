//! The cluster DNS: answers the names of Services, endpoints and pods from an index that watches keep, and forwards all
//! other names. It is an ordinary API client, and knows neither the kubelet nor the service proxy.

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
mod reflector;
pub mod server;
pub mod zone;

pub use server::{Cluster, Config, CorefileSource, HttpEndpoints, Limits, Listen, Running, Server, StartError};

/// The Corefile of a cluster without a ConfigMap `coredns`: that of kubeadm, and search paths in one round trip.
pub fn default_corefile(cluster_domain: &str) -> String {
    include_str!("Corefile").replace("cluster.local", cluster_domain)
}
