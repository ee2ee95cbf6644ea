//! Runs the overlay on a node: publishes the node's device, watches Nodes, applies changes, and repairs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::{Client, Informers, Key, Patch, Random, Resource, Selection, ordered};
use network::netlink::{Error as NetlinkError, Rtnl};
use stdx::backoff::Backoff;
use stdx::error::chain;
use stdx::sync::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::kernel::{self, Local};
use crate::model::{Peer, annotations};
use crate::plan::{Problem, Reason, plan};

const NODES: Resource = Resource::core("nodes");
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// Changes that arrive together are applied together.
const MIN_PERIOD: Duration = Duration::from_millis(20);
/// How often routes are verified that another program may have deleted.
const VERIFY_PERIOD: Duration = Duration::from_secs(10);

/// What the overlay works with.
pub struct Environment {
    /// A client that may list and watch Nodes, and patch this node's annotations.
    pub client: Client,
    /// The network of the cluster.
    pub config: Config,
    /// The name of this node.
    pub node_name: String,
    /// The bridge of this node's pods, after which devices are named. Each cluster of a machine has its own.
    pub bridge: String,
}

/// The running overlay of a node.
pub struct Handle {
    stop: watch::Sender<bool>,
    synced: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Handle {
    /// Waits until routes were applied for the first time.
    pub async fn synced(&mut self) {
        // The sender lives as long as the task.
        let _ = self.synced.wait_for(|synced| *synced).await;
    }

    /// Stops. Routes stay, so that no connection of a pod that runs on is interrupted.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the overlay network ended unexpectedly");
        }
    }
}

/// Why routes were not applied.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    #[error("failed to publish this node's device: {0}")]
    Publish(client::Error),
    #[error("the sync panicked")]
    Panic(#[from] tokio::task::JoinError),
}

/// The nodes that the watch has seen.
#[derive(Default)]
struct Nodes {
    peers: Mutex<BTreeMap<Key, Peer>>,
    /// This node's object.
    own: Mutex<Option<Arc<Tree>>>,
    changed: Notify,
}

struct Worker {
    client: Client,
    config: Config,
    node_name: String,
    bridge: String,
    nodes: Arc<Nodes>,
    rtnl: Arc<Mutex<Rtnl>>,
    synced: watch::Sender<bool>,
    /// Whether this process has applied routes.
    has_routes: bool,
    /// The problems that were logged.
    problems: Vec<Problem>,
}

/// Starts the overlay in the network namespace of the calling thread.
pub fn start(environment: Environment) -> Result<Handle, NetlinkError> {
    let Environment { client, config, node_name, bridge } = environment;
    let rtnl = Rtnl::open()?;
    let nodes = Arc::new(Nodes::default());
    let informers = Informers::new(client.clone(), Arc::new(Random::seeded(Random::fresh_seed())));
    let informer = informers.informer(Selection::all(NODES));
    let (seen, own_name) = (nodes.clone(), node_name.clone());
    informer.on_change(move |change| {
        let new = change.new.as_deref();
        if new.or(change.old.as_deref()).is_some_and(|node| node.str("metadata.name") == own_name) {
            *seen.own.lock() = new.map(|node| Arc::new(node.clone()));
        }
        if update(&seen.peers, &change.key, new.map(Peer::read)) {
            seen.changed.notify_one();
        }
    });
    let listed = informer.synced();
    informers.start();
    let (stop, stopped) = watch::channel(false);
    let (sender, synced) = watch::channel(false);
    let worker = Worker {
        client,
        config,
        node_name,
        bridge,
        nodes,
        rtnl: Arc::new(Mutex::new(rtnl)),
        synced: sender,
        has_routes: false,
        problems: Vec::new(),
    };
    let task = tokio::spawn(worker.run(stopped, listed, informers));
    Ok(Handle { stop, synced, task })
}

/// Sets or removes a node; returns whether that changes anything.
fn update(peers: &Mutex<BTreeMap<Key, Peer>>, key: &Key, peer: Option<Peer>) -> bool {
    let mut peers = peers.lock();
    match peer {
        Some(peer) if peers.get(key) == Some(&peer) => false,
        Some(peer) => {
            peers.insert(key.clone(), peer);
            true
        }
        None => peers.remove(key).is_some(),
    }
}

impl Worker {
    async fn run(
        mut self,
        mut stopped: watch::Receiver<bool>,
        mut listed: ordered::Receiver<bool>,
        informers: Informers,
    ) {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.apply_changes(&mut listed) => {}
        }
        informers.stop();
    }

    async fn apply_changes(&mut self, listed: &mut ordered::Receiver<bool>) {
        // With a part of the nodes, routes to the others would be deleted.
        let _ = listed.wait_for(|listed| *listed).await;
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            match self.sync().await {
                Ok(is_complete) => {
                    backoff.reset();
                    self.synced.send_if_modified(|synced| !std::mem::replace(synced, is_complete) && is_complete);
                    let _ = tokio::time::timeout(VERIFY_PERIOD, self.nodes.changed.notified()).await;
                    tokio::time::sleep(MIN_PERIOD).await;
                }
                Err(error) => {
                    let pause = backoff.next_pause();
                    tracing::error!(error = chain(&error), ?pause, "failed to route to other nodes, retrying");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Applies the current state; false while this node has no range or no address yet.
    async fn sync(&mut self) -> Result<bool, SyncError> {
        let own = self.nodes.own.lock().clone();
        let Some(node) = own else {
            self.remove_routes().await?;
            return Ok(false);
        };
        self.publish(&node).await?;
        let own = Peer::read(&node);
        let peers: Vec<Peer> = self.nodes.peers.lock().values().cloned().collect();
        let (config, bridge, rtnl) = (self.config.clone(), self.bridge.clone(), self.rtnl.clone());
        let is_complete = !own.endpoints.is_empty();
        let problems =
            tokio::task::spawn_blocking(move || apply(&mut rtnl.lock(), &config, &bridge, &own, &peers)).await??;
        self.has_routes = true;
        self.report(problems);
        Ok(is_complete)
    }

    /// A node that was deleted while it runs is no part of the network any more, like on the other nodes. Before it is
    /// registered, the routes of an earlier process stay.
    async fn remove_routes(&mut self) -> Result<(), SyncError> {
        if !std::mem::take(&mut self.has_routes) {
            return Ok(());
        }
        tracing::info!(node = self.node_name, "the node was deleted, removing its routes to other nodes");
        let (cidrs, bridge, rtnl) = (self.config.pod_cidrs.clone(), self.bridge.clone(), self.rtnl.clone());
        let removed = tokio::task::spawn_blocking(move || kernel::remove(&mut rtnl.lock(), &bridge, &cidrs)).await?;
        removed.map_err(kernel::Error::from).inspect_err(|_| self.has_routes = true)?;
        Ok(())
    }

    async fn publish(&self, node: &Tree) -> Result<(), SyncError> {
        if node.list("spec.podCIDRs").is_empty() {
            return Ok(());
        }
        let Some(wanted) = annotations(node, self.config.backend) else { return Ok(()) };
        let patch = tree! { "metadata" => tree! { "annotations" => wanted } };
        let patched = self.client.patch(NODES, "", &self.node_name, "", Patch::Merge(&patch)).await;
        patched.map(drop).map_err(SyncError::Publish)
    }

    /// Logs each problem once.
    fn report(&mut self, problems: Vec<Problem>) {
        for problem in problems.iter().filter(|problem| !self.problems.contains(problem)) {
            match problem.reason {
                // A node that has just joined.
                Reason::NoDevice => tracing::debug!(%problem, "pods of a node cannot be reached yet"),
                _ => tracing::warn!(%problem, "pods of a node cannot be reached"),
            }
        }
        self.problems = problems;
    }
}

fn apply(
    rtnl: &mut Rtnl,
    config: &Config,
    bridge: &str,
    own: &Peer,
    peers: &[Peer],
) -> Result<Vec<Problem>, kernel::Error> {
    let mut problems = Vec::new();
    for endpoint in &own.endpoints {
        let is_ipv4 = endpoint.pod_cidr.is_ipv4();
        let local = Local::find(rtnl, endpoint.host)?;
        let plan = plan(config, own, is_ipv4, peers, |host| local.net.contains(host));
        kernel::apply(rtnl, config, (&own.name, bridge), &local, endpoint, &plan)?;
        problems.extend(plan.problems);
    }
    Ok(problems)
}
