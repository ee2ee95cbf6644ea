//! Fake nodes, which simulate pods: they register, renew their leases, report pods as running and ready, terminate pods
//! of Jobs and pods whose annotations request it, and complete deletions. They use the public API, with one set of
//! informers for all nodes.

#![warn(unreachable_pub)]

mod addresses;
mod fleet;
mod logs;
mod node;
mod pod;
mod workers;

use std::sync::Arc;

use client::{Client, Informers, Key, Queue, Random, Resource, Selection, Store, index};
use stdx::clock::Clock;
use tokio::task::JoinHandle;

use fleet::Fleet;
use workers::{NodeWorker, PodWorker, Worker};

pub use logs::{LOG, LogError, log};
pub use node::{DOWN, LABEL, MOST, name, number};

const NODES: Resource = Resource::core("nodes");
const PODS: Resource = Resource::core("pods");
const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const OUR_NODES: Selection = Selection { resource: NODES, query: "labelSelector=tiphys.io%2Ffake-node%3Dtrue" };

/// Each write waits for the disk, and concurrent writes share a flush. Writes of nodes are not urgent.
const NODE_WORKERS: usize = 8;
const POD_WORKERS: usize = 64;

/// What fake nodes are started with.
pub struct Environment {
    /// The client of the informers of all nodes.
    pub reader: Client,
    /// The client that writes on behalf of the nodes.
    pub node: Box<dyn Fn(&str) -> Client + Send + Sync>,
    /// The clock of all nodes.
    pub clock: Arc<dyn Clock>,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// A handle of the running fake nodes.
pub struct FakeNodes {
    queues: Queues,
    workers: Vec<JoinHandle<()>>,
    informers: Arc<Informers>,
}

impl FakeNodes {
    /// Stops the workers after their current syncs.
    pub async fn stop(self) {
        self.queues.all().for_each(|queue| queue.close());
        for worker in self.workers {
            let _ = worker.await;
        }
        self.informers.stop();
    }

    /// Aborts the workers, as if the process were killed.
    pub fn kill(self) {
        self.workers.iter().for_each(JoinHandle::abort);
        self.informers.stop();
    }
}

#[derive(Clone, Default)]
struct Queues {
    nodes: Arc<Queue>,
    /// Pods on a node.
    pods: Arc<Queue>,
}

impl Queues {
    fn all(&self) -> impl Iterator<Item = &Arc<Queue>> {
        [&self.nodes, &self.pods].into_iter()
    }
}

/// The state that the workers share.
struct Shared {
    count: u32,
    clock: Arc<dyn Clock>,
    /// By the number of the node.
    clients: Vec<Client>,
    nodes: Arc<Store>,
    pods: Arc<Store>,
    fleet: Fleet,
    queues: Queues,
}

/// Fake nodes that cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// More nodes than [`MOST`].
    #[error("at most {MOST} are possible, not {0}")]
    TooMany(u32),
}

/// Starts the nodes `fake-0`, `fake-1`, and so on.
pub fn start(environment: Environment, count: u32) -> Result<FakeNodes, StartError> {
    if count > MOST {
        return Err(StartError::TooMany(count));
    }
    let random = Arc::new(Random::seeded(environment.seed));
    let informers = Arc::new(Informers::new(environment.reader, random));
    let (nodes, pods) = (informers.informer(OUR_NODES), informers.informer(Selection::all(PODS)));
    pods.index_by(index::NODE);
    let shared = Arc::new(Shared {
        count,
        clock: environment.clock,
        clients: (0..count).map(|number| (environment.node)(&name(number))).collect(),
        nodes: nodes.store().clone(),
        pods: pods.store().clone(),
        fleet: Fleet::default(),
        queues: Queues::default(),
    });
    let told = shared.clone();
    nodes.on_change(move |change| told.node_changed(change));
    let told = shared.clone();
    pods.on_change(move |change| told.pod_changed(change));
    let queues = shared.queues.clone();
    (0..count).for_each(|number| queues.nodes.add(Key::from(name(number))));
    informers.start();
    let mut workers = Vec::new();
    let mut spawn = |queue: &Arc<Queue>, work: Arc<dyn Worker>, count: usize| {
        let run = || tokio::spawn(workers::run(queue.clone(), work.clone(), informers.clone()));
        workers.extend((0..count).map(|_| run()));
    };
    spawn(&queues.nodes, Arc::new(NodeWorker::new(shared.clone())), NODE_WORKERS);
    spawn(&queues.pods, Arc::new(PodWorker(shared)), POD_WORKERS);
    Ok(FakeNodes { queues, workers, informers })
}
