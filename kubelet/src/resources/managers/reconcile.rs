//! Keeps the CPUs of running containers up to date: shared CPUs change when a container gets exclusive ones.

use super::Managers;
use crate::model::pod;
use crate::model::state::{Container, ListPods};
use crate::runtime::Runtime;

impl Managers {
    /// The CPUs with which a container was created.
    pub(crate) fn record_cpus(&self, container_id: &str, cpus: &str) {
        if self.cpu.is_none() {
            return;
        }
        self.applied.lock().insert(container_id.to_string(), cpus.to_string());
        // The assignment may have changed already.
        self.moved.notify_one();
    }

    /// Runs after each change of assignments, and periodically.
    pub(crate) async fn reconcile(&self, runtime: &Runtime, pods: &ListPods) {
        if self.cpu.is_none() {
            return;
        }
        loop {
            self.update_cpus(runtime, pods).await;
            let _ = tokio::time::timeout(self.config.pinning.cpu_reconcile_period, self.moved.notified()).await;
        }
    }

    async fn update_cpus(&self, runtime: &Runtime, pods: &ListPods) {
        let mut there = std::collections::BTreeSet::new();
        for (known, state) in pods() {
            for container in state.running() {
                there.insert(container.id.clone());
                self.apply(runtime, pod::uid(&known), container).await;
            }
        }
        // New containers are not listed yet, and are updated again at worst.
        self.applied.lock().retain(|id, _| there.contains(id));
    }

    async fn apply(&self, runtime: &Runtime, uid: &str, container: &Container) {
        let cpus = self.cpus(uid, &container.name).to_string();
        let has = self.applied.lock().get(&container.id).cloned();
        if has.as_ref() == Some(&cpus) {
            return;
        }
        let linux = cri::LinuxContainerResources { cpuset_cpus: cpus.clone(), ..Default::default() };
        let request = cri::UpdateContainerResourcesRequest {
            container_id: container.id.clone(),
            linux: Some(linux),
            ..Default::default()
        };
        match runtime.update(request).await {
            Ok(_) => {
                self.applied.lock().insert(container.id.clone(), cpus);
            }
            Err(status) => {
                tracing::warn!(
                    container = container.id,
                    cpus,
                    error = status.message(),
                    "failed to update CPU set of container"
                );
            }
        }
    }
}
