//! A node with its kubelet in simulated time. The server, the controllers and the kubelet are real; the machine, its
//! clock and its runtime are fake.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use api::{Tree, list, tree};
use client::{Client, Events, Metrics, Random};
use cluster::control_plane::in_process::LocalClients;
use kubelet::Config;
use kubelet::config::Allocatable;
use kubelet::node::{self, Node};
use kubelet::runtime::Runtime;
use stdx::clock::{Clock, RuntimeClock};
use testkit::sim::Simulation;
use tokio::task::JoinHandle;

use super::pods::Directory;
use super::remembered::{Remembered, remembered};

pub const MINUTE: Duration = Duration::from_secs(60);
/// The first second of 2026, at which simulations begin.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);
pub const PODS: client::Resource = client::Resource::core("pods");

/// A node with its kubelet.
pub struct Scene {
    pub runtime: Arc<Remembered>,
    pub running: kubelet::Kubelet,
    pub clock: Arc<Set>,
    pub dir: Directory,
    node: JoinHandle<()>,
}

impl Scene {
    /// Replaces the kubelet by another one; `meanwhile` runs while there is none.
    pub async fn restart(self, simulation: &Simulation, meanwhile: impl FnOnce(&Remembered)) -> Scene {
        self.node.abort();
        self.running.stop().await;
        meanwhile(&self.runtime);
        start_on(simulation, self.runtime, self.dir, self.clock).await
    }
}

/// A clock that tests set.
pub struct Set {
    clock: RuntimeClock,
    seconds: AtomicI64,
}

impl Set {
    pub fn new() -> Arc<Set> {
        Arc::new(Set { clock: RuntimeClock::starting_at(EPOCH), seconds: AtomicI64::new(0) })
    }

    pub fn jump(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Set {
    fn since_epoch(&self) -> Duration {
        let now = self.clock.since_epoch();
        let jumped = self.seconds.load(Ordering::Relaxed);
        let by = Duration::from_secs(jumped.unsigned_abs());
        if jumped < 0 { now - by } else { now + by }
    }
}

pub async fn start(simulation: &Simulation) -> Scene {
    let account = async |simulation: &Simulation| !simulation.objects("serviceaccounts", "default").is_empty();
    simulation.until("the account of pods", MINUTE, account).await;
    let (dir, runtime) = (Directory::new(), remembered());
    // They existed before the kubelet: their age is unknown.
    runtime.state().images = vec!["old".to_string(), "older".to_string()];
    let clock = Set::new();
    runtime.state().clock = Some(clock.clone());
    start_on(simulation, runtime, dir, clock).await
}

async fn start_on(simulation: &Simulation, runtime: Arc<Remembered>, dir: Directory, clock: Arc<Set>) -> Scene {
    let (running, node) = start_agent(simulation, &runtime, dir.path(), clock.clone(), |config| {
        config.container_logs.max_size = 1000;
        config.container_logs.max_files = 4;
    })
    .await;
    Scene { runtime, running, clock, dir, node }
}

/// A kubelet on a runtime that may have the state of another one, and the task of its node.
pub async fn start_agent(
    simulation: &Simulation,
    remembered: &Arc<Remembered>,
    dir: &Path,
    clock: Arc<dyn Clock>,
    change: impl FnOnce(&mut Config),
) -> (kubelet::Kubelet, JoinHandle<()>) {
    let mut config = Config {
        node_name: "n1".to_string(),
        hostname: "n1".to_string(),
        root_dir: dir.join("kubelet"),
        pod_logs_dir: dir.join("pods"),
        node_ips: vec![[127, 0, 0, 1].into()],
        cgroups_per_qos: false,
        allocatable: Allocatable { enforced: Vec::new(), ..Allocatable::default() },
        ..Config::default()
    };
    change(&mut config);
    let config = Arc::new(config);
    let client = LocalClients::new(&simulation.server).node("n1");
    let recorder = Events::start(clock.clone(), Metrics::default()).recorder(client.clone(), "kubelet").on("n1");
    let runtime = Runtime { service: remembered.clone(), images: remembered.clone() };
    let node = Node::new(node::Environment {
        config: config.clone(),
        client: client.clone(),
        runtime: runtime.service.clone(),
        images: runtime.images.clone(),
        clock: clock.clone(),
        recorder,
        random: Arc::new(Random::seeded(7)),
    });
    let of_node = tokio::spawn(node.clone().run());
    let (metrics, seed) = (Metrics::default(), 7);
    let network_gate = Arc::new(kubelet::network_gate::OpenGate);
    let environment = kubelet::Environment { client, runtime, node, config, clock, metrics, network_gate, seed };
    let running = kubelet::kubelet::start_on(environment, remembered.clone()).await.expect("a kubelet");
    simulation.until("the node is ready", MINUTE, async |simulation| simulation.ready_nodes() == 1).await;
    (running, of_node)
}

pub async fn make(admin: &Client, name: &str, spec: Tree) {
    let mut pod = tree! { "metadata" => tree! { "name" => name }, "spec" => spec };
    let spec = pod.child("spec");
    spec.set("nodeName", "n1");
    // Tokens need their own file system, and nothing is mounted here.
    spec.set("automountServiceAccountToken", false);
    let mut container = tree! { "name" => "c", "image" => "i:1" };
    if !spec.list("volumes").is_empty() {
        container.set("volumeMounts", list![tree! { "name" => "v", "mountPath" => "/v" }]);
    }
    if spec.list("containers").is_empty() {
        spec.set("containers", list![container]);
    }
    admin.create(PODS, "default", &pod).await.expect("a pod");
}

pub fn pod(simulation: &Simulation, name: &str) -> Tree {
    let all = simulation.objects("pods", "default");
    all.into_iter().find(|pod| pod.str("metadata.name") == name).unwrap_or_default()
}

pub async fn until_phase(simulation: &Simulation, name: &str, phase: &str) -> Tree {
    let is_so = async |simulation: &Simulation| pod(simulation, name).str("status.phase") == phase;
    simulation.until(&format!("{name} is {phase}"), 3 * MINUTE, is_so).await;
    pod(simulation, name)
}

pub fn told(simulation: &Simulation, reason: &str, message: &str) -> bool {
    let events = simulation.objects("events", "default");
    events.iter().any(|event| event.str("reason") == reason && event.str("message") == message)
}
