//! The gate between a pod's network and its first container: network policies have to be in force before a packet is
//! sent. The kubelet is independent of how they are enforced.

use std::net::IpAddr;
use std::pin::Pin;

use api::Tree;

/// A result that is not there yet.
pub type GateFuture<'a> = Pin<Box<dyn Future<Output = Result<(), GateError>> + Send + 'a>>;

/// Why the containers of a pod must not be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GateError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// Admits the containers of a pod once the rules of its network are in place.
pub trait NetworkGate: Send + Sync {
    /// The network of a pod was created; its containers start when this succeeds.
    fn pod_network_ready<'a>(&'a self, pod: &'a Tree, ips: Vec<IpAddr>) -> GateFuture<'a>;
    /// The network of a pod was removed.
    fn pod_network_removed(&self, uid: &str);
}

/// A node without network policies.
pub struct OpenGate;

impl NetworkGate for OpenGate {
    fn pod_network_ready<'a>(&'a self, _: &'a Tree, _: Vec<IpAddr>) -> GateFuture<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn pod_network_removed(&self, _: &str) {}
}
