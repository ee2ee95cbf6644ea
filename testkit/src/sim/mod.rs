//! A whole control plane in one test: server, store, controllers and fake nodes on one thread, in simulated
//! time, with faults that follow from a seed. An hour passes in seconds, and a seed run twice makes the
//! same writes in the same order.

mod faults;
mod random;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use api::{Map, Tree};
use client::{Client, Resource, Transport};
use cluster::boot::{self, Engine};
use cluster::{local, up};
use server::Server;

pub use faults::{Faults, Rates};
pub use random::Random;
pub use trace::Trace;

/// The first second of 2026: a run does not depend on the day on which it is made.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// How long a run may take to settle once nothing disturbs it any more.
const SETTLE: Duration = Duration::from_secs(900);

pub struct Simulation {
    pub server: Arc<Server>,
    /// The administrator, whom no fault meets.
    pub admin: Client,
    pub random: Random,
    pub faults: Arc<Faults>,
    pub trace: Arc<Trace>,
    nodes: Option<fakenode::Running>,
    controllers: Option<controllers::Running>,
    clock: client::RuntimeClock,
    seed: u64,
    restarts: u64,
}

/// What a run was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub hash: u64,
    pub writes: Vec<String>,
}

/// Runs a scenario from a seed in a world of its own.
pub fn run(seed: u64, nodes: u32, scenario: impl AsyncFnOnce(&mut Simulation)) -> Outcome {
    server::ids::seed_thread(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut simulation = Simulation::start(seed, nodes).await;
        scenario(&mut simulation).await;
        simulation.trace.outcome()
    })
}

/// Runs it twice: both runs must be the same.
pub fn run_twice(seed: u64, nodes: u32, scenario: impl AsyncFn(&mut Simulation)) -> Outcome {
    let first = run(seed, nodes, &scenario);
    let second = run(seed, nodes, &scenario);
    if let Some(at) = (0..first.writes.len().max(second.writes.len())).find(|at| first.writes.get(*at) != second.writes.get(*at)) {
        let (one, other) = (first.writes.get(at), second.writes.get(at));
        panic!("seed {seed}: the runs part at write {at}:\n{one:?}\n{other:?}");
    }
    assert_eq!(first.hash, second.hash, "seed {seed}");
    first
}

/// The seeds of a test: twenty, or as many as `TIPHYS_SEEDS` says.
pub fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("TIPHYS_SEEDS").map_or(20, |text| text.parse().expect("TIPHYS_SEEDS is a number"));
    0..count
}

impl Simulation {
    async fn start(seed: u64, nodes: u32) -> Simulation {
        let clock = store::clock::RuntimeClock::starting_at(EPOCH);
        let config = server::Config {
            clock: server::clock::WallClock(Arc::new(clock)),
            admission: up::admission().expect("plugins"),
            ..server::Config::default()
        };
        let server = boot::open(Engine::Memory, config, server::auth::Authentication::default()).await;
        let server = server.expect("a server");
        server::bootstrap::run(&server).await.expect("the first objects");
        let (faults, trace) = (Arc::new(Faults::new(seed)), Arc::new(Trace::default()));
        let admin = kinds::User {
            name: "admin".to_string(),
            uid: String::new(),
            groups: vec!["system:masters".to_string(), "system:authenticated".to_string()],
            extra: Map::new(),
        };
        let admin = Client::new(trace.around(local::transport(&server, admin)), "admin");
        let mut simulation = Simulation {
            server,
            admin,
            random: Random::new(seed),
            faults,
            trace,
            nodes: None,
            controllers: None,
            clock: client::RuntimeClock::starting_at(EPOCH),
            seed,
            restarts: 0,
        };
        simulation.start_controllers();
        simulation.start_nodes(nodes);
        simulation
    }
}
