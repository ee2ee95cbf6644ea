//! A kubelet on a fake runtime.

use std::path::Path;
use std::sync::Arc;

use client::{Events, Metrics, Random};
use kubelet::network_gate::{NetworkGate, OpenGate};
use kubelet::node::{self, Node};
use stdx::clock::SystemClock;
use testkit::Cluster;
use tokio::task::JoinHandle;

use super::node_client;
use super::remembered::{Remembered, remembered};

/// A directory of a node's, which goes with all that is mounted in it.
pub struct Directory(tempfile::TempDir);

impl Directory {
    pub fn new() -> Directory {
        Directory(tempfile::tempdir().expect("a directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = table
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|place| Path::new(place).starts_with(self.path()));
        for place in places {
            let _ = std::process::Command::new("umount").arg(place).status();
        }
    }
}

/// A running kubelet on a fake runtime.
pub struct Agent {
    pub runtime: Arc<Remembered>,
    pub metrics: Metrics,
    running: Option<kubelet::Kubelet>,
    node: JoinHandle<()>,
    _directory: Directory,
}

impl Agent {
    pub async fn start(cluster: &Cluster, name: &str, change: impl FnOnce(&mut kubelet::Config)) -> Agent {
        Agent::start_with_gate(cluster, name, Arc::new(OpenGate), change).await
    }

    pub async fn start_with_gate(
        cluster: &Cluster,
        name: &str,
        network_gate: Arc<dyn NetworkGate>,
        change: impl FnOnce(&mut kubelet::Config),
    ) -> Agent {
        let directory = Directory::new();
        let mut config = kubelet::Config {
            node_name: name.to_string(),
            root_dir: directory.path().join("kubelet"),
            pod_logs_dir: directory.path().join("logs/pods"),
            cgroups_per_qos: false,
            node_ips: vec![[127, 0, 0, 1].into()],
            ..kubelet::Config::default()
        };
        config.allocatable.enforced.clear();
        // How full this machine is does not matter.
        config.eviction.thresholds.clear();
        change(&mut config);
        let config = Arc::new(config);
        let (client, clock, metrics) = (node_client(cluster, name), Arc::new(SystemClock), Metrics::default());
        let runtime = remembered();
        let node = Node::new(node::Environment {
            recorder: Events::start(clock.clone(), metrics.clone()).recorder(client.clone(), "kubelet").on(name),
            config: config.clone(),
            client: client.clone(),
            runtime: runtime.clone(),
            images: runtime.clone(),
            clock: clock.clone(),
            random: Arc::new(Random::seeded(7)),
        });
        let environment = kubelet::Environment {
            client,
            runtime: kubelet::runtime::Runtime { service: runtime.clone(), images: runtime.clone() },
            node: node.clone(),
            config,
            clock,
            metrics: metrics.clone(),
            network_gate,
            seed: 7,
        };
        let running = Some(kubelet::kubelet::start_on(environment, runtime.clone()).await.expect("a kubelet"));
        Agent { runtime, metrics, running, node: tokio::spawn(node.run()), _directory: directory }
    }

    pub async fn stop(mut self) {
        self.node.abort();
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}
