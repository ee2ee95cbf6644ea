//! The kubelet's metrics, with upstream's names and help texts.

mod pod_starts;

use std::sync::Arc;

use api::Tree;
use client::{Metric, Metrics};

use crate::model::pod;
use crate::model::state::{PodState, Stage};
pub(crate) use pod_starts::Starts;

const TIMES: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const STARTS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

pub(crate) static POD_START: Metric = Metric::histogram_of(
    "kubelet_pod_start_duration_seconds",
    "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
    &[],
    STARTS,
);
pub(crate) static POD_START_SLI: Metric = Metric::histogram_of(
    "kubelet_pod_start_sli_duration_seconds",
    "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod \
     creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
    STARTS,
);
pub(crate) static POD_START_TOTAL: Metric = Metric::histogram_of(
    "kubelet_pod_start_total_duration_seconds",
    "Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured \
     from pod creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
    STARTS,
);
pub(crate) static POD_WORK: Metric = Metric::histogram_of(
    "kubelet_pod_worker_duration_seconds",
    "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
    &["operation_type"],
    TIMES,
);
pub(crate) static STARTED_PODS: Metric =
    Metric::counter("kubelet_started_pods_total", "Cumulative number of pods started", &[]);
pub(crate) static STARTED_PODS_ERRORS: Metric =
    Metric::counter("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods", &[]);
pub(crate) static STARTED_CONTAINERS: Metric =
    Metric::counter("kubelet_started_containers_total", "Cumulative number of containers started", &["container_type"]);
pub(crate) static STARTED_CONTAINERS_ERRORS: Metric = Metric::counter(
    "kubelet_started_containers_errors_total",
    "Cumulative number of errors when starting containers",
    &["container_type", "code"],
);
pub(crate) static PREEMPTIONS: Metric = Metric::counter(
    "kubelet_preemptions",
    "Cumulative number of pod preemptions by preemption resource",
    &["preemption_signal"],
);
pub(crate) static RELIST: Metric = Metric::histogram_of(
    "kubelet_pleg_relist_duration_seconds",
    "Duration in seconds for relisting pods in PLEG.",
    &[],
    TIMES,
);
pub(crate) static RELIST_INTERVAL: Metric = Metric::histogram_of(
    "kubelet_pleg_relist_interval_seconds",
    "Interval in seconds between relisting in PLEG.",
    &[],
    TIMES,
);
pub(crate) static RELIST_LAST: Metric =
    Metric::gauge("kubelet_pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active.", &[]);
pub(crate) static PROBES: Metric = Metric::counter(
    "prober_probe_total",
    "Cumulative number of a liveness, readiness or startup probe for a container by result.",
    &["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
);
pub(crate) static PROBE_TIME: Metric = Metric::histogram_of(
    "prober_probe_duration_seconds",
    "Duration in seconds for a probe response.",
    &["probe_type", "container", "pod", "namespace"],
    TIMES,
);
static RUNNING_PODS: Metric =
    Metric::gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox", &[]);
static RUNNING_CONTAINERS: Metric =
    Metric::gauge("kubelet_running_containers", "Number of containers currently running", &["container_state"]);
static DESIRED_PODS: Metric = Metric::gauge(
    "kubelet_desired_pods",
    "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
    &["static"],
);
static MIRROR_PODS: Metric = Metric::gauge(
    "kubelet_mirror_pods",
    "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
    &[],
);
static NODE_NAME: Metric = Metric::gauge("kubelet_node_name", "The node's name. The count is always 1.", &["node"]);

/// Counts pods and containers whenever the metrics are read; `list` returns None once the kubelet has stopped, else the
/// pods and the number of mirror pods.
pub(crate) fn observe_pods(
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

/// The type of a container, as upstream counts them.
pub(crate) fn sort(pod: &Tree, name: &str) -> &'static str {
    let is_in = |list: &str| pod.list(list).iter().any(|spec| spec.str("name") == name);
    match () {
        () if is_in(pod::LISTS[0]) => "init_container",
        () if is_in(pod::LISTS[2]) => "ephemeral_container",
        () => "container",
    }
}
