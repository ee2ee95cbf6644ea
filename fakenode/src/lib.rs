//! Nodes that run nothing but behave: they register, renew their leases, report pods as running and ready,
//! end those whose annotations say so, and complete deletions. Until a scheduler does it, they also give
//! waiting pods their nodes. An ordinary client of the API, one set of informers for all nodes.

mod addresses;
mod bind;
mod fleet;
mod node;
mod pod;
mod work;

use std::sync::Arc;

use client::{Client, Clock, Informer, Key, Queue, Resource, Selection, Store};
use tokio::task::JoinHandle;

use fleet::Fleet;
use work::{Binder, Nodes, Pods};

pub use node::{DOWN, LABEL, MOST, name};

const NODES: Resource = Resource::core("nodes");
const PODS: Resource = Resource::core("pods");
const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const OUR_NODES: Selection = Selection { resource: NODES, query: "labelSelector=tiphys.io%2Ffake-node%3Dtrue" };
const ALL_PODS: Selection = Selection { resource: PODS, query: "" };

/// Each write waits for the disk: many at once share that.
const WORKERS: usize = 64;

pub struct Environment {
    /// Reads for all nodes, and binds: what a scheduler may.
    pub scheduler: Client,
    /// The client that acts as a node.
    pub node: Box<dyn Fn(&str) -> Client + Send + Sync>,
    pub clock: Arc<dyn Clock>,
}

/// Nodes at work.
pub struct Running {
    queues: [Arc<Queue>; 3],
    workers: Vec<JoinHandle<()>>,
    informers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Lets each piece of work finish.
    pub async fn stop(self) {
        self.queues.iter().for_each(|queue| queue.close());
        for worker in self.workers {
            let _ = worker.await;
        }
        self.informers.iter().for_each(JoinHandle::abort);
    }

    /// Ends it where it is, as if the process were killed.
    pub fn kill(self) {
        self.workers.iter().chain(&self.informers).for_each(JoinHandle::abort);
    }
}

/// What all of it shares.
struct Shared {
    count: u32,
    clock: Arc<dyn Clock>,
    scheduler: Client,
    /// By the number of the node.
    clients: Vec<Client>,
    nodes: Arc<Store>,
    pods: Arc<Store>,
    fleet: Fleet,
}

/// Starts the nodes `fake-0`, `fake-1`, and so on.
pub fn start(environment: Environment, count: u32) -> Result<Running, String> {
    if count > MOST {
        return Err(format!("{count} fake nodes are too many: at most {MOST}"));
    }
    let mut nodes = Informer::new(environment.scheduler.clone(), OUR_NODES, Arc::default());
    let mut pods = Informer::new(environment.scheduler.clone(), ALL_PODS, Arc::default());
    pods.store().index(client::index::NODE);
    let shared = Arc::new(Shared {
        count,
        clock: environment.clock,
        scheduler: environment.scheduler,
        clients: (0..count).map(|number| (environment.node)(&name(number))).collect(),
        nodes: nodes.store().clone(),
        pods: pods.store().clone(),
        fleet: Fleet::default(),
    });
    let queues: [Arc<Queue>; 3] = Default::default();
    let [node_queue, bind_queue, pod_queue] = &queues;
    {
        let (shared, queues) = (shared.clone(), queues.clone());
        nodes.on_change(move |change| work::node_changed(&shared, change, &queues));
    }
    {
        let (shared, queues) = (shared.clone(), queues.clone());
        pods.on_change(move |change| work::pod_changed(&shared, change, &queues));
    }
    (0..count).for_each(|number| node_queue.add(Key::from(name(number))));
    let synced = [nodes.synced(), pods.synced()];
    let informers = vec![tokio::spawn(nodes.run()), tokio::spawn(pods.run())];
    let mut workers = Vec::new();
    let mut spawn = |queue: &Arc<Queue>, work: Arc<dyn work::Work>, count: usize| {
        for _ in 0..count {
            workers.push(tokio::spawn(work::run(queue.clone(), work.clone(), shared.clone(), synced.clone())));
        }
    };
    spawn(node_queue, Arc::new(Nodes::new(shared.clone())), WORKERS);
    // One at a time, so that turns are kept; the requests themselves are quick.
    spawn(bind_queue, Arc::new(Binder(shared.clone())), WORKERS);
    spawn(pod_queue, Arc::new(Pods(shared.clone())), WORKERS);
    Ok(Running { queues, workers, informers })
}
