//! What the agent counts, under upstream's names.

mod pod_starts;

use std::sync::Arc;

use api::Tree;
use client::{Metric, Metrics};

use crate::model::pod;
use crate::model::state::{PodState, Stage};
pub use pod_starts::Starts;

const TIMES: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const STARTS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

pub static POD_START: Metric = Metric::histogram_of(
    "kubelet_pod_start_duration_seconds",
    "From the first sight of a pod to its running.",
    &[],
    STARTS,
);
pub static POD_START_SLI: Metric = Metric::histogram_of(
    "kubelet_pod_start_sli_duration_seconds",
    "From a pod's creation to its running as a watch shows it, without pulls of images and init containers.",
    &[],
    STARTS,
);
pub static POD_START_TOTAL: Metric = Metric::histogram_of(
    "kubelet_pod_start_total_duration_seconds",
    "From a pod's creation to its running as a watch shows it.",
    &[],
    STARTS,
);
pub static POD_WORK: Metric = Metric::histogram_of(
    "kubelet_pod_worker_duration_seconds",
    "How long one look at a pod and what followed took.",
    &["operation_type"],
    TIMES,
);
pub static STARTED_PODS: Metric = Metric::counter("kubelet_started_pods_total", "Sandboxes that were begun.", &[]);
pub static STARTED_PODS_ERRORS: Metric =
    Metric::counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made.", &[]);
pub static STARTED_CONTAINERS: Metric =
    Metric::counter("kubelet_started_containers_total", "Containers that were begun.", &["container_type"]);
pub static STARTED_CONTAINERS_ERRORS: Metric = Metric::counter(
    "kubelet_started_containers_errors_total",
    "Containers that could not be started.",
    &["container_type", "code"],
);
pub static PREEMPTIONS: Metric =
    Metric::counter("kubelet_preemptions", "Pods that made room for critical ones.", &["preemption_signal"]);
pub static RELIST: Metric =
    Metric::histogram_of("kubelet_pleg_relist_duration_seconds", "How long a look at all pods took.", &[], TIMES);
pub static RELIST_INTERVAL: Metric =
    Metric::histogram_of("kubelet_pleg_relist_interval_seconds", "The time between two looks at all pods.", &[], TIMES);
pub static RELIST_LAST: Metric =
    Metric::gauge("kubelet_pleg_last_seen_seconds", "When the runtime was last seen to answer.", &[]);
pub static PROBES: Metric = Metric::counter(
    "prober_probe_total",
    "Answers to probes.",
    &["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
);
pub static PROBE_TIME: Metric = Metric::histogram_of(
    "prober_probe_duration_seconds",
    "How long probes took.",
    &["probe_type", "container", "pod", "namespace"],
    TIMES,
);
static RUNNING_PODS: Metric = Metric::gauge("kubelet_running_pods", "Pods that have a sandbox that runs.", &[]);
static RUNNING_CONTAINERS: Metric =
    Metric::gauge("kubelet_running_containers", "Containers by their state.", &["container_state"]);
static DESIRED_PODS: Metric = Metric::gauge("kubelet_desired_pods", "Pods that shall run here.", &["static"]);
static MIRROR_PODS: Metric = Metric::gauge("kubelet_mirror_pods", "Mirrors of static pods.", &[]);
static NODE_NAME: Metric = Metric::gauge("kubelet_node_name", "The node's name, the count is always 1.", &["node"]);

/// Counts pods and containers whenever the metrics are read; `list` says None once the kubelet has stopped, else the
/// pods and the number of mirror pods.
pub fn observe_pods(
    metrics: &Metrics,
    node: &str,
    list: impl Fn() -> Option<(Vec<(Arc<Tree>, Arc<PodState>)>, usize)> + Send + Sync + 'static,
) {
    metrics.record(&NODE_NAME, &[node], 1.0);
    let gauges = [&RUNNING_PODS, &RUNNING_CONTAINERS, &DESIRED_PODS, &MIRROR_PODS];
    metrics.on_collect(gauges, move |metrics| {
        if let Some((pods, mirrors)) = list() {
            count(metrics, &pods);
            metrics.record(&MIRROR_PODS, &[], mirrors as f64);
        }
    });
}

fn count(metrics: &Metrics, pods: &[(Arc<Tree>, Arc<PodState>)]) {
    let running = pods.iter().filter(|(_, state)| state.sandboxes.iter().any(|sandbox| sandbox.is_ready)).count();
    metrics.record(&RUNNING_PODS, &[], running as f64);
    let stages = [
        ("created", Stage::Created),
        ("running", Stage::Running),
        ("exited", Stage::Exited),
        ("unknown", Stage::Unknown),
    ];
    for (name, stage) in stages {
        let of = pods.iter().flat_map(|(_, state)| &state.containers).filter(|seen| seen.stage == stage).count();
        metrics.record(&RUNNING_CONTAINERS, &[name], of as f64);
    }
    let own = pods.iter().filter(|(pod, _)| pod::is_static(pod)).count();
    metrics.record(&DESIRED_PODS, &["true"], own as f64);
    metrics.record(&DESIRED_PODS, &[""], (pods.len() - own) as f64);
}

/// What sort of container one is, as upstream counts them.
pub fn sort(pod: &Tree, name: &str) -> &'static str {
    let is_in = |list: &str| pod.list(list).iter().any(|spec| spec.str("name") == name);
    match () {
        () if is_in(pod::LISTS[0]) => "init_container",
        () if is_in(pod::LISTS[2]) => "ephemeral_container",
        () => "container",
    }
}
