//! Keeps the CPUs of running containers what they should be: those that share get fewer when one gets its own.

use std::sync::Arc;

use super::Managers;
use crate::model::pod;
use crate::pod::context::Agent;
use crate::pod::worker::Workers;

impl Managers {
    /// The CPUs that a container was made with.
    pub fn made(&self, container_id: &str, cpus: &str) {
        if self.cpu.is_none() {
            return;
        }
        self.applied.lock().insert(container_id.to_string(), cpus.to_string());
        // They may be others already.
        self.moved.notify_one();
    }

    /// Whenever something was given or given back, and once in a while.
    pub async fn reconcile(&self, agent: Arc<Agent>, workers: Arc<Workers>) {
        if self.cpu.is_none() {
            return;
        }
        loop {
            self.bring_up_to_date(&agent, &workers).await;
            let _ = tokio::time::timeout(self.config.pinning.cpu_reconcile_period, self.moved.notified()).await;
        }
    }

    async fn bring_up_to_date(&self, agent: &Agent, workers: &Workers) {
        let mut there = std::collections::BTreeSet::new();
        for known in workers.pods() {
            let Some((_, state)) = workers.find(pod::uid(&known)) else { continue };
            for container in state.running() {
                there.insert(container.id.clone());
                self.apply(agent, pod::uid(&known), container).await;
            }
        }
        // Those that were made a moment ago are not seen yet, and told again at worst.
        self.applied.lock().retain(|id, _| there.contains(id));
    }

    async fn apply(&self, agent: &Agent, uid: &str, container: &crate::model::state::Container) {
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
        match agent.runtime.update(request).await {
            Ok(_) => {
                self.applied.lock().insert(container.id.clone(), cpus);
            }
            Err(status) => {
                tracing::warn!(
                    container = container.id,
                    cpus,
                    error = status.message(),
                    "a container keeps other CPUs than it should have"
                );
            }
        }
    }
}
