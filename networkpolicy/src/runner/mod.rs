//! Runs network policies on a node: watches the API, applies changes in batches, and repairs the rules.

mod metrics;
mod shared;
mod sync;
mod watch;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Str, Tree};
use client::{Client, Events, Metrics};
use podmodel::Labels;
use stdx::clock::Clock;
use stdx::sync::Mutex;
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;

use crate::kernel::{Error, Kernel};
use crate::model::{NamedPort, Pod};
use shared::Shared;

/// How long a pod waits for its rules before its start is given up, to be tried again.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The dependencies of network policies.
pub struct Environment {
    /// A client that may list and watch NetworkPolicies, Pods and Namespaces, and write events.
    pub client: Client,
    /// The name of the nftables table, of the family `inet`. Each cluster of a machine needs its own.
    pub table: String,
    /// The name of this node.
    pub node_name: String,
    /// Whether the rules are deleted on stop. Otherwise they stay in force until the next start replaces them.
    pub cleanup_on_stop: bool,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// The time of day, for events.
    pub clock: Arc<dyn Clock>,
}

/// A pod of this node whose network has just been created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodInfo {
    /// Its namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// Its UID; for a static pod, the one that the kubelet gave it.
    pub uid: Str,
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// The named ports of its containers.
    pub ports: Vec<NamedPort>,
}

impl PodInfo {
    /// Reads what is needed from a Pod; its addresses are not in its status yet.
    pub fn read(pod: &Tree, ips: Vec<IpAddr>) -> PodInfo {
        let Pod { namespace, name, uid, labels, ports, .. } = Pod::read(pod);
        PodInfo { namespace, name, uid, labels, ips, ports }
    }
}

/// Why the containers of a pod must not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    /// The API server was not reachable so far.
    #[error("network policies are not known yet")]
    NotSynced,
    /// The kernel refuses the rules.
    #[error("failed to apply network policies: {0}")]
    NotApplied(Arc<str>),
    /// The node stops.
    #[error("network policies are not applied any more, because the node stops")]
    Stopped,
}

/// The kubelet's side: reports pods.
#[derive(Clone)]
pub struct PodReporter(Arc<Shared>);

impl PodReporter {
    /// Waits until the policies of a pod are in force, which has got its network and has no running container yet. A
    /// pod must not be started if this fails. Pods in the network of the host are not reported.
    pub async fn pod_network_ready(&self, pod: PodInfo) -> Result<(), PodError> {
        let mut outcome = self.0.outcome.subscribe();
        let generation = self.0.report(pod);
        let is_decided = |outcome: &shared::Outcome| outcome.of(generation).is_some();
        match tokio::time::timeout(READY_TIMEOUT, outcome.wait_for(is_decided)).await {
            Ok(Ok(outcome)) => outcome.of(generation).unwrap_or(Err(PodError::NotSynced)),
            Ok(Err(_)) => Err(PodError::Stopped),
            Err(_) => Err(PodError::NotSynced),
        }
    }

    /// The network of a pod is deleted.
    pub fn pod_network_removed(&self, uid: &str) {
        self.0.remove(uid);
    }
}

/// Running network policies.
pub struct NetworkPolicyHandle {
    agent: PodReporter,
    stop: channel::Sender<bool>,
    task: JoinHandle<()>,
}

impl NetworkPolicyHandle {
    /// The interface through which the kubelet reports pods.
    pub fn pod_reporter(&self) -> PodReporter {
        self.agent.clone()
    }

    /// Waits until policies have been applied for the first time.
    pub async fn synced(&self) {
        // The sender exists as long as the agent.
        let _ = self.agent.0.outcome.subscribe().wait_for(shared::Outcome::is_synced).await;
    }

    /// Stops. Rules stay in force unless the environment requires a cleanup.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "network policies ended unexpectedly");
        }
    }

    /// Waits until it ends by itself, which is a failure.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }
}

/// Starts network policies in the network namespace of the calling thread. Rules of an earlier start stay in force
/// until the first lists are complete.
pub async fn start(environment: Environment) -> Result<NetworkPolicyHandle, Error> {
    let Environment { client, table, node_name, cleanup_on_stop, metrics, clock } = environment;
    let kernel = Kernel::open(&table)?;
    let notices = kernel.notices()?;
    let events = Events::start(clock, metrics.clone());
    let recorder = events.recorder(client.clone(), "networkpolicy").on(&node_name);
    let shared = Arc::new(Shared::new(&node_name));
    let policies = watch::PolicyWatch::start(&client, &shared, recorder);
    let (stop, stopped) = channel::channel(false);
    let worker = sync::Worker {
        shared: shared.clone(),
        client,
        kernel: Arc::new(Mutex::new(kernel)),
        policies,
        peers: None,
        metrics,
        cleanup_on_stop,
    };
    let task = tokio::spawn(worker.run(stopped, notices));
    Ok(NetworkPolicyHandle { agent: PodReporter(shared), stop, task })
}

/// Deletes the rules, in the network namespace of the calling thread.
pub fn cleanup(table: &str) -> Result<(), Error> {
    Kernel::open(table)?.cleanup()
}
