//! How long pods take to start, as observed on the node and in the API.

use std::collections::BTreeMap;

use api::{Tree, time};
use client::Metrics;
use stdx::sync::{Mutex, MutexGuard};

use super::{POD_START, POD_START_SLI, POD_START_TOTAL};
use crate::model::pod;
use crate::model::state::{PodState, Stage};

const SECOND: f64 = 1e9;

/// Pods that are starting; times are nanoseconds since the epoch.
pub(crate) struct Starts {
    metrics: Metrics,
    pods: Mutex<BTreeMap<String, Start>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Start {
    seen: i64,
    /// The pod was added while the kubelet was running; only such pods are measured.
    is_new: bool,
    first_pull: Option<i64>,
    last_pull: Option<i64>,
    /// The duration of init containers.
    prepared: i64,
    has_run: bool,
    is_recorded: bool,
}

impl Start {
    /// Seconds from the creation until now, and those that the node is responsible for.
    fn measured(&self, created: i64, now: i64) -> (f64, f64) {
        let pulls = match (self.first_pull, self.last_pull) {
            (Some(first), Some(last)) => (last - first).max(0),
            _ => 0,
        };
        let all = now.saturating_sub(created).max(0);
        (all as f64 / SECOND, (all - pulls - self.prepared).max(0) as f64 / SECOND)
    }
}

impl Starts {
    pub(crate) fn new(metrics: Metrics) -> Starts {
        Starts { metrics, pods: Mutex::default() }
    }

    /// The API shows a pod.
    pub(crate) fn observe(&self, pod: &Tree, now: i64) {
        let mut pods = self.pods();
        let is_new = pod.str("status.startTime").is_empty();
        let start = pods.entry(pod::uid(pod).to_string()).or_insert(Start { seen: now, is_new, ..Start::default() });
        if start.is_recorded || !start.is_new || !start.has_run || !all_run(pod) {
            return;
        }
        start.is_recorded = true;
        let Ok(created) = time::parse(pod.str("metadata.creationTimestamp")) else { return };
        let (all, own) = start.measured(created.seconds.saturating_mul(1_000_000_000), now);
        drop(pods);
        self.metrics.record(&POD_START_TOTAL, &[], all);
        self.metrics.record(&POD_START_SLI, &[], own);
    }

    pub(crate) fn record_pull_start(&self, uid: &str, now: i64) {
        if let Some(start) = self.pods().get_mut(uid) {
            start.first_pull.get_or_insert(now);
        }
    }

    pub(crate) fn record_pull_end(&self, uid: &str, now: i64) {
        if let Some(start) = self.pods().get_mut(uid) {
            start.last_pull = Some(now);
        }
    }

    /// The kubelet reports a pod as running.
    pub(crate) fn runs(&self, pod: &Tree, state: &PodState, now: i64) {
        let mut pods = self.pods();
        let Some(start) = pods.get_mut(pod::uid(pod)).filter(|start| start.is_new && !start.has_run) else { return };
        start.has_run = true;
        start.prepared = prepared(pod, state);
        let passed = (now - start.seen).max(0) as f64 / SECOND;
        drop(pods);
        self.metrics.record(&POD_START, &[], passed);
    }

    pub(crate) fn remove_pod(&self, uid: &str) {
        self.pods().remove(uid);
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Start>> {
        self.pods.lock()
    }
}

fn all_run(pod: &Tree) -> bool {
    let statuses = pod.list("status.containerStatuses");
    !statuses.is_empty() && statuses.iter().all(|status| status.at("state").has("running"))
}

fn prepared(pod: &Tree, state: &PodState) -> i64 {
    let inits = pod.list("spec.initContainers").iter().filter(|spec| !pod::is_sidecar(spec));
    let ended = inits.filter_map(|spec| state.container(spec.str("name")).filter(|seen| seen.stage == Stage::Exited));
    ended.map(|seen| (seen.finished_at - seen.started_at).max(0)).sum()
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    const NANOS: i64 = 1_000_000_000;

    fn pod(status: &str) -> Tree {
        let text = format!("{{metadata: {{uid: u, creationTimestamp: '1970-01-01T00:01:40Z'}}, status: {{{status}}}}}");
        yaml::decode(text.as_bytes()).expect("a pod")
    }

    const RUNNING: &str = "startTime: x, containerStatuses: [{state: {running: {}}}]";

    #[test]
    fn counts_a_start_once_and_without_pulls() {
        let metrics = Metrics::default();
        let starts = Starts::new(metrics.clone());
        starts.observe(&pod(""), 101 * NANOS);
        starts.record_pull_start("u", 102 * NANOS);
        starts.record_pull_end("u", 105 * NANOS);
        starts.observe(&pod(RUNNING), 106 * NANOS);
        assert!(!metrics.render().contains("kubelet_pod_start"), "it has not run yet");
        starts.runs(&pod(""), &PodState::default(), 107 * NANOS);
        starts.observe(&pod(RUNNING), 108 * NANOS);
        starts.runs(&pod(""), &PodState::default(), 117 * NANOS);
        starts.observe(&pod(RUNNING), 118 * NANOS);
        let text = metrics.render();
        let lines = [
            "kubelet_pod_start_duration_seconds_sum 6",
            "kubelet_pod_start_duration_seconds_count 1",
            "kubelet_pod_start_total_duration_seconds_sum 8",
            "kubelet_pod_start_sli_duration_seconds_sum 5",
            "kubelet_pod_start_sli_duration_seconds_count 1",
        ];
        lines.iter().for_each(|line| assert!(text.contains(line), "{line} is not in\n{text}"));
    }

    #[test]
    fn ignores_pods_from_before_the_start() {
        let metrics = Metrics::default();
        let starts = Starts::new(metrics.clone());
        starts.observe(&pod(RUNNING), 101 * NANOS);
        starts.runs(&pod(RUNNING), &PodState::default(), 102 * NANOS);
        starts.observe(&pod(RUNNING), 103 * NANOS);
        assert!(!metrics.render().contains("kubelet_pod_start"));
        starts.remove_pod("u");
        assert!(starts.pods().is_empty());
    }
}
