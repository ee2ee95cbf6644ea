//! The node's lease: it shows other components that the kubelet is alive.

use std::sync::Arc;
use std::time::Duration;

use api::time::{Timestamp, format_micros};
use api::{Tree, list, tree};
use client::{Client, Random, Resource, Result};
use stdx::backoff::Backoff;
use stdx::clock::Clock;

use crate::config::Config;

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const NAMESPACE: &str = "kube-node-lease";
const TRIES: usize = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

/// Renews the lease when a quarter of its time has passed.
pub(crate) struct LeaseController {
    pub(crate) config: Arc<Config>,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
}

/// A lease that is renewed now: the existing one, or a new one. The node owns it, so that it is deleted with the node.
pub(crate) fn lease(config: &Config, node_uid: Option<&str>, held: Option<&Tree>, now: Timestamp) -> Tree {
    let name = config.node_name.as_str();
    let mut lease = held.cloned().unwrap_or_else(|| {
        tree! {
            "apiVersion" => "coordination.k8s.io/v1",
            "kind" => "Lease",
            "metadata" => tree! { "name" => name, "namespace" => NAMESPACE },
        }
    });
    let spec = lease.child("spec");
    spec.set("holderIdentity", name);
    spec.set("leaseDurationSeconds", config.node_lease_duration.as_secs() as i64);
    spec.set("renewTime", format_micros(now));
    if let Some(uid) = node_uid.filter(|_| lease.list("metadata.ownerReferences").is_empty()) {
        let owner = tree! { "apiVersion" => "v1", "kind" => "Node", "name" => name, "uid" => uid };
        lease.child("metadata").set("ownerReferences", list![owner]);
    }
    lease
}

impl LeaseController {
    /// Runs until it is dropped. `node_uid` returns the UID of the Node object once it exists.
    pub(crate) async fn run(&self, node_uid: impl Fn() -> Option<String>) {
        let period = self.config.node_lease_duration.mul_f64(0.25);
        let mut held: Option<Tree> = None;
        loop {
            let uid = node_uid();
            held = self.renewed(held, uid.as_deref()).await;
            // Otherwise, all kubelets of a cluster that start together would always renew together.
            tokio::time::sleep(self.random.jitter(period, 0.04)).await;
        }
    }

    /// The lease after its renewal; None if it has to be read again.
    async fn renewed(&self, held: Option<Tree>, uid: Option<&str>) -> Option<Tree> {
        let mut held = held;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for attempt in 1.. {
            match self.renew(held.as_ref(), uid).await {
                Ok(lease) => return Some(lease),
                Err(error) if held.is_some() && attempt >= TRIES => {
                    tracing::warn!(%error, "failed to renew lease");
                    return None;
                }
                Err(error) => tracing::debug!(%error, "failed to renew lease, retrying"),
            }
            held = None;
            tokio::time::sleep(backoff.next_pause()).await;
        }
        None
    }

    async fn renew(&self, held: Option<&Tree>, uid: Option<&str>) -> Result<Tree> {
        let (config, now) = (&self.config, self.clock.now());
        let name = config.node_name.as_str();
        let found = match held {
            Some(held) => Some(held.clone()),
            None => match self.client.get(LEASES, NAMESPACE, name).await {
                Err(error) if error.is_not_found() => None,
                found => Some(found?),
            },
        };
        let lease = lease(config, uid, found.as_ref(), now);
        match found {
            Some(_) => self.client.update(LEASES, NAMESPACE, name, &lease).await,
            None => self.client.create(LEASES, NAMESPACE, &lease).await,
        }
    }
}
