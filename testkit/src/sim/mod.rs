//! A whole control plane in one test: server, store, controllers, scheduler and fake nodes on one thread, in simulated
//! time, with faults from a seed. An hour passes in seconds, and two runs of a seed write the same in the same order.

mod faults;
mod latency;
mod random;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Client, Patch, Resource};
use cluster::control_plane::in_process::LocalClients;
use cluster::control_plane::{self, Engine};
use cluster::up;
use server::Server;

pub use faults::Faults;
pub use random::Random;
pub use trace::Trace;

/// The first second of 2026: a run does not depend on the current date.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// The resource of nodes.
pub const NODES: Resource = Resource::core("nodes");

/// A control plane in simulated time.
pub struct Simulation {
    pub server: Arc<Server>,
    /// The administrator, whom no fault meets.
    pub admin: Client,
    pub random: Random,
    pub faults: Arc<Faults>,
    pub trace: Arc<Trace>,
    pub node_count: u32,
    local: LocalClients,
    controllers: Option<controllers::Handle>,
    scheduler: Option<scheduler::SchedulerHandle>,
    /// The nodes run until the end.
    _nodes: fakenode::FakeNodes,
}

/// A world in which nothing is written is looked at again after this.
const QUIET_SECONDS: u32 = 10;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub hash: u64,
    pub writes: Vec<String>,
    /// All requests that reached the server, and when.
    pub requests: Vec<String>,
}

/// Runs a scenario from a seed in a world of its own.
pub fn run(seed: u64, nodes: u32, scenario: impl AsyncFnOnce(&mut Simulation)) -> Outcome {
    server::common::ids::seed_thread(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut simulation = Simulation::start(seed, nodes).await;
        scenario(&mut simulation).await;
        simulation.trace.outcome()
    })
}

/// Runs it twice: both runs must be the same.
pub fn run_twice(seed: u64, nodes: u32, scenario: impl AsyncFn(&mut Simulation)) -> Outcome {
    let (first, second) = (run(seed, nodes, &scenario), run(seed, nodes, &scenario));
    for (one, other) in [(&first.requests, &second.requests), (&first.writes, &second.writes)] {
        if let Some(at) = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at)) {
            let around = |lines: &[String]| lines[at.saturating_sub(10)..lines.len().min(at + 10)].join("\n");
            panic!("seed {seed}: the runs part at {at}:\n{}\n\n{}", around(one), around(other));
        }
    }
    assert_eq!(first.hash, second.hash, "seed {seed}");
    first
}

/// The seeds of a test: `usual` many, or those of `TIPHYS_SEEDS`: a count, or `FROM..TO`.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("TIPHYS_SEEDS") else { return 0..usual };
    let number = |text: &str| text.parse().expect("TIPHYS_SEEDS is a number, or FROM..TO");
    text.split_once("..").map_or_else(|| 0..number(&text), |(from, to)| number(from)..number(to))
}

impl Simulation {
    async fn start(seed: u64, nodes: u32) -> Simulation {
        let clock = stdx::clock::RuntimeClock::starting_at(EPOCH);
        let config = server::Config {
            clock: stdx::clock::SharedClock(Arc::new(clock)),
            admission: up::admission().expect("plugins"),
            ..server::Config::default()
        };
        let server =
            control_plane::open(Engine::Memory, config, server::authentication::Authentication::default()).await;
        let server = server.expect("a server");
        server::bootstrap::run(&server).await.expect("the first objects");
        let (faults, trace) = (Arc::new(Faults::new(seed)), Arc::new(Trace::default()));
        let mut local = LocalClients::new(&server);
        local.clock = Arc::new(stdx::clock::RuntimeClock::starting_at(EPOCH));
        local.seed = seed;
        let traced = trace.clone();
        local.around = Arc::new(move |transport| traced.around(transport));
        let admin = local.client("admin", "admin".to_string(), &["system:masters"]);
        let (traced, faulty, slow) = (trace.clone(), faults.clone(), Arc::new(latency::Latency::new()));
        local.around = Arc::new(move |transport| faulty.around(slow.around(traced.around(transport))));
        let started = fakenode::start(local.fake_nodes(), nodes).expect("nodes");
        let random = Random::new(seed);
        let mut simulation = Simulation {
            server,
            admin,
            random,
            faults,
            trace,
            node_count: nodes,
            local,
            controllers: None,
            scheduler: None,
            _nodes: started,
        };
        simulation.start_controllers();
        simulation.start_scheduler();
        simulation
    }

    fn start_controllers(&mut self) {
        let options = Arc::new(controllers::Options::default());
        let started = controllers::start(self.local.controllers(options), &["*".to_string()]);
        self.controllers = Some(started.expect("controllers"));
    }

    fn start_scheduler(&mut self) {
        let started = scheduler::start(self.local.scheduler(scheduler::config::Configuration::default()));
        self.scheduler = Some(started.expect("a scheduler"));
    }

    /// Kills the scheduler wherever it is, and starts it again after a while.
    pub async fn restart_scheduler(&mut self, after: Duration) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.abort();
        }
        tokio::time::sleep(after).await;
        self.local.seed = self.random.number();
        self.start_scheduler();
    }

    /// Kills the controllers wherever they are, and starts them again after a while.
    pub async fn restart_controllers(&mut self, after: Duration) {
        if let Some(controllers) = self.controllers.take() {
            controllers.abort();
        }
        tokio::time::sleep(after).await;
        // All further random decisions use a new seed.
        self.local.seed = self.random.number();
        self.start_controllers();
    }

    /// The machine of a node is lost, or back.
    pub async fn set_node_down(&self, number: u32, down: bool) {
        let value = if down { Tree::from("true") } else { Tree::Null };
        let mut annotations = api::Map::new();
        annotations.insert(fakenode::DOWN, value);
        let patch = api::tree! { "metadata" => api::tree! { "annotations" => annotations } };
        let patched = self.admin.patch(NODES, "", &fakenode::name(number), "", Patch::Merge(&patch)).await;
        patched.expect("the node is there");
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until something holds, looking at the world once a second where it stirs, and now and then where it
    /// does not: a look costs more than anything else here.
    pub async fn until(&self, what: &str, deadline: Duration, holds: impl AsyncFn(&Simulation) -> bool) {
        let deadline = tokio::time::Instant::now() + deadline;
        while !holds(self).await {
            assert!(tokio::time::Instant::now() < deadline, "{what}: not in time\n{}", self.describe());
            let seen = self.trace.stir();
            for _ in 0..QUIET_SECONDS {
                self.pass(Duration::from_secs(1)).await;
                if self.trace.stir() != seen {
                    break;
                }
            }
        }
    }

    /// All objects of a storage path in a namespace, or in all where it is "".
    pub fn objects(&self, storage: &str, namespace: &str) -> Vec<Tree> {
        self.server.objects(storage, namespace)
    }

    /// A description of the simulated cluster for failures.
    pub fn describe(&self) -> String {
        let mut lines = Vec::new();
        for storage in ["minions", "deployments", "replicasets", "jobs", "pods"] {
            for object in self.objects(storage, "") {
                let meta = object.at("metadata");
                let mut status = object.at("status").clone();
                [
                    "conditions",
                    "containerStatuses",
                    "capacity",
                    "allocatable",
                    "nodeInfo",
                    "addresses",
                    "daemonEndpoints",
                ]
                .iter()
                .for_each(|key| drop(status.remove(key)));
                let status = String::from_utf8_lossy(&api::json::encode(&status, None)).into_owned();
                let (deleted, held) = (meta.str("deletionTimestamp"), meta.list("finalizers").len());
                let node = object.str("spec.nodeName");
                lines.push(format!(
                    "{storage} {} {node} deleted={deleted} finalizers={held} {status}",
                    meta.str("name")
                ));
            }
        }
        lines.join("\n")
    }

    /// The nodes that report ready and that the control plane considers ready.
    pub fn ready_nodes(&self) -> usize {
        let ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
        let nodes = self.objects("minions", "");
        nodes.iter().filter(|node| node.list("status.conditions").iter().any(ready)).count()
    }
}
