//! The agent at work, as the answers see it.

use std::path::PathBuf;
use std::sync::Arc;

use api::Tree;
use client::{Clock, Metrics};
use cri::{DynImageService, DynRuntimeService};

use super::{Host, Measuring};
use crate::agent::Agent;
use crate::pod;
use crate::run::Running;
use crate::usage;
use crate::worker::Workers;

pub struct Served {
    agent: Arc<Agent>,
    workers: Arc<Workers>,
    metrics: Metrics,
    configuration: Tree,
}

impl Served {
    /// `configuration` is the KubeletConfiguration in effect.
    pub fn new(running: &Running, metrics: Metrics, configuration: Tree) -> Served {
        Served { agent: running.agent.clone(), workers: running.workers.clone(), metrics, configuration }
    }

    fn with_status(&self, pod: Arc<Tree>) -> Tree {
        let status = self.agent.statuses.last(&pod);
        let mut pod = Arc::unwrap_or_clone(pod);
        pod.set("status", status);
        pod
    }
}

impl Host for Served {
    fn node_name(&self) -> &str {
        &self.agent.node
    }

    fn pods(&self) -> Vec<Tree> {
        self.workers.pods().into_iter().map(|pod| self.with_status(pod)).collect()
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Tree> {
        let is_it = |pod: &Arc<Tree>| pod::namespace(pod) == namespace && pod::name(pod) == name;
        self.workers.pods().into_iter().find(is_it).map(|pod| self.with_status(pod))
    }

    fn runtime(&self) -> Arc<dyn DynRuntimeService> {
        self.agent.runtime.service.clone()
    }

    fn images(&self) -> Arc<dyn DynImageService> {
        self.agent.runtime.images.clone()
    }

    fn configuration(&self) -> Tree {
        self.configuration.clone()
    }

    fn metrics(&self) -> String {
        self.metrics.render()
    }

    fn probe_metrics(&self) -> String {
        self.agent.probes.metrics.render()
    }

    fn sync_loop(&self) -> Result<(), String> {
        self.agent.pulse.sync_loop(tokio::time::Instant::now(), self.agent.config.sync_frequency)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.agent.clock.clone()
    }

    fn root_dir(&self) -> PathBuf {
        self.agent.config.root_dir.clone()
    }

    fn files<'a>(&'a self, pods: &'a [Tree]) -> Measuring<'a> {
        Box::pin(usage::files(&self.agent, pods))
    }
}
