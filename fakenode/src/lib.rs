//! Fake nodes, which simulate pods: they register, renew their leases, report pods as running and ready,
//! end those of Jobs and those whose annotations say so, and complete deletions. An ordinary client of the API, one set of
//! informers for all nodes.

mod addresses;
mod fleet;
mod logs;
mod node;
mod pod;
mod work;

use std::sync::Arc;

use client::{Client, Informers, Key, Queue, Random, Resource, Selection, Store, index};
use stdx::clock::Clock;
use tokio::task::JoinHandle;

use fleet::Fleet;
use work::{Nodes, Pods, Work};

pub use logs::{LOG, LogError, log};
pub use node::{DOWN, LABEL, MOST, name, number};

const NODES: Resource = Resource::core("nodes");
const PODS: Resource = Resource::core("pods");
const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const OUR_NODES: Selection = Selection { resource: NODES, query: "labelSelector=tiphys.io%2Ffake-node%3Dtrue" };

/// Each write waits for the disk: many at once share that. Nodes have time.
const NODE_WORKERS: usize = 8;
const POD_WORKERS: usize = 64;

pub struct Environment {
    /// Reads nodes and pods for all of them.
    pub reader: Client,
    /// The client that acts as a node.
    pub node: Box<dyn Fn(&str) -> Client + Send + Sync>,
    pub clock: Arc<dyn Clock>,
    /// Where all that is left to chance starts from.
    pub seed: u64,
}

/// Nodes at work.
pub struct Running {
    queues: Queues,
    workers: Vec<JoinHandle<()>>,
    informers: Arc<Informers>,
}

impl Running {
    /// Lets each piece of work finish.
    pub async fn stop(self) {
        self.queues.all().for_each(|queue| queue.close());
        for worker in self.workers {
            let _ = worker.await;
        }
        self.informers.stop();
    }

    /// Ends it where it is, as if the process were killed.
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

/// What all of it shares.
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
    #[error("{0} are too many: at most {MOST}")]
    TooMany(u32),
}

/// Starts the nodes `fake-0`, `fake-1`, and so on.
pub fn start(environment: Environment, count: u32) -> Result<Running, StartError> {
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
    let mut spawn = |queue: &Arc<Queue>, work: Arc<dyn Work>, count: usize| {
        let run = || tokio::spawn(work::run(queue.clone(), work.clone(), informers.clone()));
        workers.extend((0..count).map(|_| run()));
    };
    spawn(&queues.nodes, Arc::new(Nodes::new(shared.clone())), NODE_WORKERS);
    spawn(&queues.pods, Arc::new(Pods(shared)), POD_WORKERS);
    Ok(Running { queues, workers, informers })
}
