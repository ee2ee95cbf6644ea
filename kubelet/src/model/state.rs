//! The state of a pod in the runtime: its sandboxes and containers, newest first, as plain values.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;

pub(crate) use cri::ContainerState as Stage;

/// Labels and annotations of the kubelet's containers and sandboxes in the runtime.
pub mod keys {
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// The pod's UID.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    pub(crate) const HASH: &str = "io.kubernetes.container.hash";
    pub(crate) const RESTARTS: &str = "io.kubernetes.container.restartCount";
    pub(crate) const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub(crate) const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub(crate) const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
    pub(crate) const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
    pub(crate) const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
    pub(crate) const PORTS: &str = "io.kubernetes.container.ports";
    /// The round of restarts for which a container was created.
    pub(crate) const ROUND: &str = "tiphys.io/round";
}

/// Lists the pods of the node with their states in the runtime.
pub(crate) type ListPods = Arc<dyn Fn() -> Vec<(Arc<Tree>, Arc<PodState>)> + Send + Sync>;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodState {
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) containers: Vec<Container>,
    /// When a rule has restarted all containers: containers that were created before do not count any more.
    pub(crate) round: i64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) is_ready: bool,
    /// Nanoseconds since the epoch, as all times of the runtime's.
    pub(crate) created_at: i64,
    pub(crate) addresses: Vec<String>,
    pub(crate) on_host_network: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) name: String,
    pub(crate) restarts: i64,
    pub(crate) stage: Stage,
    pub(crate) hash: String,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) image: String,
    pub(crate) image_id: String,
    pub(crate) log_path: String,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) resources: Option<cri::LinuxContainerResources>,
    pub(crate) user: Option<cri::LinuxContainerUser>,
    pub(crate) stop_signal: i32,
}

impl Container {
    pub(crate) fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.stage == Stage::Exited && self.exit_code == 0
    }

    pub(crate) fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).map_or("", String::as_str)
    }
}

impl PodState {
    /// The newest sandbox.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// The newest of a container's.
    pub(crate) fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The newest container of this name in the current sandbox.
    pub(crate) fn active(&self, name: &str) -> Option<&Container> {
        let sandbox = self.sandbox()?;
        let counts = |container: &&Container| container.sandbox == sandbox.id && !self.is_before_restart(container);
        self.containers.iter().filter(|container| container.name == name).find(counts)
    }

    /// Whether a container is from before the last restart of all containers. A container that was created for the new
    /// round is not, whatever the clock shows.
    pub(crate) fn is_before_restart(&self, container: &Container) -> bool {
        let made_for = container.annotation(keys::ROUND).parse().unwrap_or(0);
        container.created_at <= self.round && made_for < self.round
    }

    /// The container before the newest.
    pub(crate) fn previous(&self, name: &str) -> Option<&Container> {
        self.containers.iter().filter(|container| container.name == name).nth(1)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| matches!(container.stage, Stage::Running | Stage::Unknown))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.running().next().is_none() && !self.sandboxes.iter().any(|sandbox| sandbox.is_ready)
    }

    /// Sorts both lists. The clock may have been set back between two containers: attempts count before times, and
    /// started containers come before those that never started.
    pub(crate) fn sorted(mut self) -> PodState {
        self.sandboxes.sort_by(|a, b| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)));
        let order = |one: &Container| (one.restarts, one.stage != Stage::Created, one.created_at, one.id.clone());
        self.containers.sort_by_key(|container| std::cmp::Reverse(order(container)));
        self
    }
}

/// A sandbox, from its CRI status.
pub(crate) fn sandbox(status: &cri::PodSandboxStatus) -> Sandbox {
    let network = status.network.clone().unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|address| address.ip);
    let options = status.linux.clone().and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    Sandbox {
        id: status.id.clone(),
        attempt: status.metadata.clone().unwrap_or_default().attempt,
        is_ready: status.state() == cri::PodSandboxState::Ready,
        created_at: status.created_at,
        addresses: std::iter::once(network.ip).chain(more).filter(|ip| !ip.is_empty()).collect(),
        on_host_network: options.is_some_and(|options| options.network() == cri::NamespaceMode::Node),
    }
}

/// A container, from its CRI status.
pub(crate) fn container(sandbox: &str, status: cri::ContainerStatus) -> Container {
    let text = |map: &BTreeMap<String, String>, key: &str| map.get(key).cloned().unwrap_or_default();
    let name = status.metadata.clone().unwrap_or_default().name;
    let labelled = text(&status.labels, keys::CONTAINER_NAME);
    Container {
        stage: status.state(),
        sandbox: sandbox.to_string(),
        name: if labelled.is_empty() { name } else { labelled },
        restarts: text(&status.annotations, keys::RESTARTS).parse().unwrap_or(0),
        hash: text(&status.annotations, keys::HASH),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: status.image.map(|image| named_image(&image)).unwrap_or_default(),
        image_id: status.image_ref,
        log_path: status.log_path,
        annotations: status.annotations,
        resources: status.resources.and_then(|resources| resources.linux),
        user: status.user.and_then(|user| user.linux),
        stop_signal: status.stop_signal,
        id: status.id,
    }
}

fn named_image(image: &cri::ImageSpec) -> String {
    let named = if image.user_specified_image.is_empty() { &image.image } else { &image.user_specified_image };
    named.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(id: &str, restarts: i64, stage: Stage, created_at: i64, round: &str) -> Container {
        let annotations = [(keys::RESTARTS, restarts.to_string()), (keys::ROUND, round.to_string())];
        let status = cri::ContainerStatus {
            id: id.to_string(),
            state: stage.into(),
            created_at,
            annotations: annotations.into_iter().map(|(key, value)| (key.to_string(), value)).collect(),
            ..Default::default()
        };
        container("s", status)
    }

    #[test]
    fn sorts_the_newest_first_whatever_the_clock_says() {
        let containers = vec![
            made("first", 0, Stage::Exited, 500, ""),
            made("never started", 1, Stage::Created, 200, ""),
            made("second", 1, Stage::Running, 100, ""),
        ];
        let sandbox = |attempt, created_at| Sandbox { attempt, created_at, ..Sandbox::default() };
        let state = PodState { sandboxes: vec![sandbox(0, 500), sandbox(1, 100)], containers, round: 0 }.sorted();
        let ids: Vec<&str> = state.containers.iter().map(|container| container.id.as_str()).collect();
        assert_eq!(ids, ["second", "never started", "first"]);
        assert_eq!(state.sandbox().map(|sandbox| sandbox.attempt), Some(1));
    }

    #[test]
    fn containers_of_this_round_are_not_outdated() {
        let state = PodState { round: 400, ..PodState::default() };
        let cases = [(300, "", true), (500, "", false), (300, "400", false), (300, "200", true)];
        for (created_at, round, before) in cases {
            let seen = made("c", 0, Stage::Running, created_at, round);
            assert_eq!(state.is_before_restart(&seen), before, "made at {created_at} for {round:?}");
        }
    }
}
