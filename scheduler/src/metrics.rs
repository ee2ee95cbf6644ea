//! The scheduler's metrics, with upstream's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use client::metrics::register;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, exponential_buckets,
};

use crate::framework::Point;
use crate::queue::Counts;

/// Clones share the same metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    attempts: AttemptMetrics,
    queue: QueueMetrics,
    preemption: PreemptionMetrics,
    plugins: PluginMetrics,
}

struct AttemptMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
    algorithm_duration: Histogram,
    pod_attempts: Histogram,
    sli_duration: HistogramVec,
}

struct QueueMetrics {
    pending: IntGaugeVec,
    incoming: IntCounterVec,
    cache: IntGaugeVec,
    unschedulable: IntGaugeVec,
}

struct PreemptionMetrics {
    attempts: IntCounter,
    victims: Histogram,
}

struct PluginMetrics {
    points: HistogramVec,
    executions: HistogramVec,
    evaluations: IntCounterVec,
    permit_wait: HistogramVec,
}

/// Values that are computed on collection.
#[derive(Default)]
pub struct Gauges {
    pub queue: Counts,
    /// By scheduler name and plugin.
    pub refused: BTreeMap<(Str, &'static str), usize>,
    pub nodes: usize,
    pub pods: usize,
    pub assumed: usize,
    /// Number of cycles in which each plugin was evaluated: scheduler, plugin, point.
    pub evaluations: Vec<(Str, &'static str, Point, u64)>,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Scheduled,
    Unschedulable,
    Error,
}

impl Attempt {
    fn label(self) -> &'static str {
        match self {
            Attempt::Scheduled => "scheduled",
            Attempt::Unschedulable => "unschedulable",
            Attempt::Error => "error",
        }
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        let registry = Registry::new();
        let inner = Inner {
            attempts: AttemptMetrics::new(&registry),
            queue: QueueMetrics::new(&registry),
            preemption: PreemptionMetrics::new(&registry),
            plugins: PluginMetrics::new(&registry),
            registry,
        };
        Metrics(Arc::new(inner))
    }
}

impl AttemptMetrics {
    fn new(registry: &Registry) -> AttemptMetrics {
        AttemptMetrics {
            total: register(
                IntCounterVec::new(
                    named(
                        "schedule_attempts_total",
                        "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
                    ),
                    &["profile", "result"],
                ),
                registry,
            ),
            duration: register(
                HistogramVec::new(
                    options(
                        "scheduling_attempt_duration_seconds",
                        "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
                        millis(),
                    ),
                    &["profile", "result"],
                ),
                registry,
            ),
            algorithm_duration: register(
                Histogram::with_opts(options(
                    "scheduling_algorithm_duration_seconds",
                    "Scheduling algorithm latency in seconds",
                    millis(),
                )),
                registry,
            ),
            pod_attempts: register(
                Histogram::with_opts(options(
                    "pod_scheduling_attempts",
                    "Number of attempts to successfully schedule a pod.",
                    buckets(1.0, 2.0, 5),
                )),
                registry,
            ),
            sli_duration: register(
                HistogramVec::new(
                    options(
                        "pod_scheduling_sli_duration_seconds",
                        "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
                        buckets(0.01, 2.0, 20),
                    ),
                    &["attempts"],
                ),
                registry,
            ),
        }
    }
}

impl QueueMetrics {
    fn new(registry: &Registry) -> QueueMetrics {
        QueueMetrics {
            pending: register(
                IntGaugeVec::new(
                    named(
                        "pending_pods",
                        "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of pods in pendingPodGroupPods.",
                    ),
                    &["queue"],
                ),
                registry,
            ),
            incoming: register(
                IntCounterVec::new(
                    named(
                        "queue_incoming_pods_total",
                        "Number of pods added to scheduling queues by event and queue type.",
                    ),
                    &["queue", "event"],
                ),
                registry,
            ),
            cache: register(
                IntGaugeVec::new(
                    named("cache_size", "Number of nodes, pods, and assumed (bound) pods in the scheduler cache."),
                    &["type"],
                ),
                registry,
            ),
            unschedulable: register(
                IntGaugeVec::new(
                    named(
                        "unschedulable_pods",
                        "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
                    ),
                    &["plugin", "profile"],
                ),
                registry,
            ),
        }
    }
}

impl PreemptionMetrics {
    fn new(registry: &Registry) -> PreemptionMetrics {
        PreemptionMetrics {
            attempts: register(
                IntCounter::with_opts(named(
                    "preemption_attempts_total",
                    "Total preemption attempts in the cluster till now",
                )),
                registry,
            ),
            victims: register(
                Histogram::with_opts(options(
                    "preemption_victims",
                    "Number of selected preemption victims for preemption initiated by a single pod",
                    buckets(1.0, 2.0, 7),
                )),
                registry,
            ),
        }
    }
}

impl PluginMetrics {
    fn new(registry: &Registry) -> PluginMetrics {
        PluginMetrics {
            points: register(
                HistogramVec::new(
                    options(
                        "framework_extension_point_duration_seconds",
                        "Latency for running all plugins of a specific extension point.",
                        buckets(0.0001, 2.0, 12),
                    ),
                    &["extension_point", "status", "profile"],
                ),
                registry,
            ),
            executions: register(
                HistogramVec::new(
                    options(
                        "plugin_execution_duration_seconds",
                        "Duration for running a plugin at a specific extension point.",
                        buckets(0.00001, 1.5, 20),
                    ),
                    &["plugin", "extension_point", "status"],
                ),
                registry,
            ),
            evaluations: register(
                IntCounterVec::new(
                    named(
                        "plugin_evaluation_total",
                        "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, PreScore, and Score).",
                    ),
                    &["plugin", "extension_point", "profile"],
                ),
                registry,
            ),
            permit_wait: register(
                HistogramVec::new(
                    options("permit_wait_duration_seconds", "Duration of waiting on permit.", millis()),
                    &["result"],
                ),
                registry,
            ),
        }
    }
}

fn buckets(start: f64, factor: f64, count: usize) -> Vec<f64> {
    exponential_buckets(start, factor, count).unwrap_or_default()
}

fn millis() -> Vec<f64> {
    buckets(0.001, 2.0, 15)
}

fn options(name: &str, help: &str, buckets: Vec<f64>) -> HistogramOpts {
    HistogramOpts::new(format!("scheduler_{name}"), help).buckets(buckets)
}

fn named(name: &str, help: &str) -> Opts {
    Opts::new(format!("scheduler_{name}"), help)
}

impl Metrics {
    /// Counts an attempt and its duration.
    pub fn attempt(&self, profile: &str, attempt: Attempt, took: Duration) {
        let labels = [profile, attempt.label()];
        self.0.attempts.total.with_label_values(&labels).inc();
        self.0.attempts.duration.with_label_values(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn algorithm_done(&self, took: Duration) {
        self.0.attempts.algorithm_duration.observe(took.as_secs_f64());
    }

    /// Records the duration of an extension point.
    pub fn point(&self, point: Point, profile: &str, is_well: bool, took: Duration) {
        let (point, status) = (format!("{point:?}"), if is_well { "Success" } else { "Error" });
        self.0.plugins.points.with_label_values(&[point.as_str(), status, profile]).observe(took.as_secs_f64());
    }

    /// Records the duration of a plugin at an extension point.
    pub fn plugin(&self, plugin: &str, point: Point, is_well: bool, took: Duration) {
        let (point, status) = (format!("{point:?}"), if is_well { "Success" } else { "Unschedulable" });
        self.0.plugins.executions.with_label_values(&[plugin, point.as_str(), status]).observe(took.as_secs_f64());
    }

    /// Records how long a pod waited for permission.
    pub fn permitted(&self, is_allowed: bool, waited: Duration) {
        let result = if is_allowed { "Success" } else { "Unschedulable" };
        self.0.plugins.permit_wait.with_label_values(&[result]).observe(waited.as_secs_f64());
    }

    /// Records the attempts and the time until a pod was bound.
    pub fn bound(&self, attempts: u32, waited: Duration) {
        self.0.attempts.pod_attempts.observe(attempts.into());
        let attempts = if attempts > 15 { "16+".to_string() } else { attempts.to_string() };
        self.0.attempts.sli_duration.with_label_values(&[attempts.as_str()]).observe(waited.as_secs_f64());
    }

    pub(crate) fn pod_queued(&self, queue: &str, event: &str) {
        self.0.queue.incoming.with_label_values(&[queue, event]).inc();
    }

    pub(crate) fn preempted(&self, victims: usize) {
        self.0.preemption.attempts.inc();
        self.0.preemption.victims.observe(victims as f64);
    }

    /// Encodes all metrics.
    pub fn render(&self, gauges: &Gauges) -> String {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let queue = &gauges.queue;
        let queues = [
            ("active", queue.active),
            ("backoff", queue.backing_off),
            ("unschedulable", queue.parked),
            ("gated", queue.gated),
        ];
        queues.iter().for_each(|(queue, count)| self.0.queue.pending.with_label_values(&[*queue]).set(number(*count)));
        let sizes = [("nodes", gauges.nodes), ("pods", gauges.pods), ("assumed_pods", gauges.assumed)];
        sizes.iter().for_each(|(kind, count)| self.0.queue.cache.with_label_values(&[*kind]).set(number(*count)));
        // A plugin that no longer rejects any pod is removed.
        self.0.queue.unschedulable.reset();
        for ((profile, plugin), count) in &gauges.refused {
            self.0.queue.unschedulable.with_label_values(&[*plugin, profile.as_str()]).set(number(*count));
        }
        // Counted by the scheduling cycle without a lock.
        self.0.plugins.evaluations.reset();
        for (profile, plugin, point, count) in &gauges.evaluations {
            let point = format!("{point:?}");
            self.0.plugins.evaluations.with_label_values(&[*plugin, point.as_str(), profile.as_str()]).inc_by(*count);
        }
        client::metrics::render(&self.0.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_upstream_names() {
        let metrics = Metrics::default();
        metrics.attempt("default-scheduler", Attempt::Scheduled, Duration::from_millis(3));
        metrics.bound(17, Duration::from_secs(2));
        metrics.point(Point::Bind, "default-scheduler", false, Duration::from_millis(1));
        metrics.pod_queued("active", "PodAdd");
        metrics.preempted(2);
        let queue = Counts { active: 1, backing_off: 2, parked: 3, gated: 4 };
        let refused = BTreeMap::from([((Str::from("default-scheduler"), "NodeName"), 3)]);
        metrics.plugin("NodeName", Point::Filter, true, Duration::from_micros(3));
        metrics.permitted(false, Duration::from_secs(1));
        let evaluations = vec![(Str::from("default-scheduler"), "NodeName", Point::Filter, 7)];
        let text = metrics.render(&Gauges { queue, refused, nodes: 5, pods: 6, assumed: 1, evaluations });
        let lines = [
            r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="scheduled"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="16+"} 1"#,
            r#"scheduler_framework_extension_point_duration_seconds_count{extension_point="Bind",profile="default-scheduler",status="Error"} 1"#,
            r#"scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 1"#,
            r#"scheduler_pending_pods{queue="gated"} 4"#,
            r#"scheduler_preemption_attempts_total 1"#,
            r#"scheduler_preemption_victims_sum 2"#,
            r#"scheduler_unschedulable_pods{plugin="NodeName",profile="default-scheduler"} 3"#,
            r#"scheduler_cache_size{type="assumed_pods"} 1"#,
            r#"scheduler_plugin_execution_duration_seconds_count{extension_point="Filter",plugin="NodeName",status="Success"} 1"#,
            r#"scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeName",profile="default-scheduler"} 7"#,
            r#"scheduler_permit_wait_duration_seconds_count{result="Unschedulable"} 1"#,
        ];
        for line in lines {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
