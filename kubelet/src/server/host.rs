//! The interface of a running kubelet for its server.

use std::path::PathBuf;
use std::sync::Arc;

use api::Tree;
use client::Metrics;
use cri::{DynImageService, DynRuntimeService};
use stdx::clock::Clock;

use super::{Host, UsageFuture};
use crate::kubelet::Kubelet;
use crate::liveness::{Liveness, SyncLoopError};
use crate::model::pod;
use crate::model::resources::class;
use crate::pod::context::PodContext;
use crate::pod::status::writer::{OWN, WHILE_RESIZED};
use crate::pod::worker::Workers;
use crate::resources::usage;
use crate::resources::usage::PodFiles;

/// A running kubelet, for its server.
pub struct KubeletHost {
    context: Arc<PodContext>,
    liveness: Arc<Liveness>,
    disk_files: PodFiles,
    workers: Arc<Workers>,
    metrics: Metrics,
    configuration: Tree,
}

impl KubeletHost {
    /// `configuration` is the KubeletConfiguration in effect.
    pub fn new(running: &Kubelet, metrics: Metrics, configuration: Tree) -> KubeletHost {
        KubeletHost {
            context: running.context.clone(),
            liveness: running.liveness.clone(),
            disk_files: running.files.clone(),
            workers: running.workers.clone(),
            metrics,
            configuration,
        }
    }

    fn with_status(&self, pod: Arc<Tree>) -> Tree {
        let status = merged(&pod, &self.context.statuses.last(&pod));
        let mut pod = Arc::unwrap_or_clone(pod);
        pod.set("status", status);
        pod
    }
}

/// The kubelet's status of a pod, with conditions that other components have set.
fn merged(pod: &Tree, reported: &Tree) -> Tree {
    let mut status = pod.at("status").clone();
    if status.as_map().is_none() {
        status = Tree::map_new();
    }
    OWN.iter().for_each(|field| drop(status.remove(field)));
    for (field, value) in reported.as_map().into_iter().flat_map(|reported| reported.iter()) {
        let value = match field {
            "conditions" => conditions(pod.list("status.conditions"), value),
            _ => value.clone(),
        };
        status.set(field, value);
    }
    // The API server sets it for other pods, but not for static ones.
    status.set("qosClass", class(pod).name());
    status
}

/// The kubelet's conditions first, in their order, and in their newest state.
fn conditions(seen: &[Tree], reported: &Tree) -> Tree {
    let mut all = reported.as_list().unwrap_or(&[]).to_vec();
    let is_own = |kind: &str| all.iter().any(|own| own.str("type") == kind) || WHILE_RESIZED.contains(&kind);
    let others: Vec<Tree> = seen.iter().filter(|other| !is_own(other.str("type"))).cloned().collect();
    all.extend(others);
    Tree::List(all)
}

impl Host for KubeletHost {
    fn node_name(&self) -> &str {
        &self.context.node.name
    }

    fn pods(&self) -> Vec<Tree> {
        self.workers.pods().into_iter().map(|pod| self.with_status(pod)).collect()
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Tree> {
        let is_it = |pod: &Arc<Tree>| pod::namespace(pod) == namespace && pod::name(pod) == name;
        self.workers.pods().into_iter().find(is_it).map(|pod| self.with_status(pod))
    }

    fn runtime(&self) -> Arc<dyn DynRuntimeService> {
        self.context.runtime.service.clone()
    }

    fn images(&self) -> Arc<dyn DynImageService> {
        self.context.runtime.images.clone()
    }

    fn configuration(&self) -> Tree {
        self.configuration.clone()
    }

    fn metrics(&self) -> String {
        self.metrics.render()
    }

    fn probe_metrics(&self) -> String {
        self.context.probes.metrics.render()
    }

    fn sync_loop(&self) -> Result<(), SyncLoopError> {
        self.liveness.sync_loop(tokio::time::Instant::now(), self.context.config.sync_frequency)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.context.clock.clone()
    }

    fn root_dir(&self) -> PathBuf {
        self.context.config.root_dir.clone()
    }

    fn files<'a>(&'a self, pods: &'a [Tree]) -> UsageFuture<'a> {
        Box::pin(usage::files(&self.disk_files, pods))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tree {
        api::yaml::decode(text.as_bytes()).expect("yaml")
    }

    #[test]
    fn shows_conditions_of_other_components() {
        let pod = read(
            "
spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}
status:
  phase: Pending
  podIP: 10.0.0.9
  nominatedNodeName: n
  conditions: [{type: PodScheduled, status: 'True'}, {type: Ready, status: 'False'}, {type: PodResizePending, status: 'True'}]
",
        );
        let reported = read("{phase: Running, conditions: [{type: Ready, status: 'True'}]}");
        let want = read(
            "
phase: Running
nominatedNodeName: n
qosClass: Burstable
conditions: [{type: Ready, status: 'True'}, {type: PodScheduled, status: 'True'}]
",
        );
        assert_eq!(merged(&pod, &reported), want);
        let own = merged(&read("spec: {containers: [{name: c}]}"), &read("phase: Running"));
        assert_eq!(own, read("{phase: Running, qosClass: BestEffort}"));
    }
}
