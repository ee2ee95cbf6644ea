//! Metrics of queues, events and elections with upstream's names, and the metrics that components define.

mod family;

use std::sync::{Arc, Weak};

use prometheus::core::Collector;
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
    exponential_buckets,
};
use stdx::sync::Mutex;

use crate::queue::{Queue, QueueMetrics};
use family::Families;
pub use family::{Metric, MetricKind};

/// Sets gauges when metrics are collected.
type CollectFn = Box<dyn Fn(&Metrics) + Send + Sync>;

/// The metrics of a process. Clones share the same registry.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    depth: IntGaugeVec,
    adds: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    retries: IntCounterVec,
    events: IntCounterVec,
    panics: IntCounterVec,
    leader: IntGaugeVec,
    queues: Mutex<Vec<(&'static str, Weak<Queue>)>>,
    families: Families,
    collectors: Mutex<Vec<CollectFn>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let registry = Registry::new();
        let by_name = &["name"];
        let gauges = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), by_name);
        let floats = |name: &str, help: &str| GaugeVec::new(Opts::new(name, help), by_name);
        let counters = |name: &str, help: &str, label: &str| IntCounterVec::new(Opts::new(name, help), &[label]);
        let buckets = exponential_buckets(1e-8, 10.0, 10).unwrap_or_default();
        let times = |name: &str, help: &str| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.clone()), by_name)
        };
        let inner = Inner {
            depth: register(gauges("workqueue_depth", "Current depth of workqueue"), &registry),
            adds: register(
                counters("workqueue_adds_total", "Total number of adds handled by workqueue", "name"),
                &registry,
            ),
            waited: register(
                times(
                    "workqueue_queue_duration_seconds",
                    "How long in seconds an item stays in workqueue before being requested.",
                ),
                &registry,
            ),
            worked: register(
                times(
                    "workqueue_work_duration_seconds",
                    "How long in seconds processing an item from workqueue takes.",
                ),
                &registry,
            ),
            unfinished: register(
                floats(
                    "workqueue_unfinished_work_seconds",
                    "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
                ),
                &registry,
            ),
            longest: register(
                floats(
                    "workqueue_longest_running_processor_seconds",
                    "How many seconds has the longest running processor for workqueue been running.",
                ),
                &registry,
            ),
            retries: register(
                counters("workqueue_retries_total", "Total number of retries handled by workqueue", "name"),
                &registry,
            ),
            events: register(
                counters("tiphys_events_total", "Number of events, by whether they were written or dropped.", "result"),
                &registry,
            ),
            panics: register(
                counters("tiphys_controller_panics_total", "Number of panics in reconciles, by controller.", "name"),
                &registry,
            ),
            leader: register(
                gauges(
                    "leader_election_master_status",
                    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                ),
                &registry,
            ),
            registry,
            queues: Mutex::default(),
            families: Families::default(),
            collectors: Mutex::default(),
        };
        Metrics(Arc::new(inner))
    }
}

/// Registers a collector. Names are constants, and each is registered once.
pub fn register<C: Collector + Clone + 'static>(collector: prometheus::Result<C>, registry: &Registry) -> C {
    let collector = collector.expect("the names are valid");
    registry.register(Box::new(collector.clone())).expect("each collector is registered once");
    collector
}

impl Metrics {
    /// Creates a queue with metrics under a name.
    pub fn queue(&self, name: &'static str) -> Arc<Queue> {
        let inner = &self.0;
        let queue = Arc::new(Queue::counted(QueueMetrics {
            depth: inner.depth.with_label_values(&[name]),
            adds: inner.adds.with_label_values(&[name]),
            waited: inner.waited.with_label_values(&[name]),
            worked: inner.worked.with_label_values(&[name]),
            retries: inner.retries.with_label_values(&[name]),
        }));
        inner.queues.lock().push((name, Arc::downgrade(&queue)));
        queue
    }

    /// Counts an event that was written or dropped.
    pub fn event(&self, written: bool) {
        self.0.events.with_label_values(&[if written { "written" } else { "dropped" }]).inc();
    }

    /// Counts a reconcile that panicked.
    pub fn panic(&self, controller: &str) {
        self.0.panics.with_label_values(&[controller]).inc();
    }

    /// Records whether this process holds a lease.
    pub fn leads(&self, name: &str, leads: bool) {
        self.0.leader.with_label_values(&[name]).set(leads.into());
    }

    /// Records a value of a component's metric.
    pub fn record(&self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.0.families.record(&self.0.registry, metric, labels, value);
    }

    /// Increments a counter.
    pub fn count(&self, metric: &'static Metric, labels: &[&str]) {
        self.record(metric, labels, 1.0);
    }

    /// Removes the series with these labels.
    pub fn forget(&self, metric: &'static Metric, labels: &[&str]) {
        self.0.families.forget(metric, labels);
    }

    /// Calls `collect` before metrics are rendered: gauges need no updates in between. The given gauges are cleared
    /// each time.
    pub fn on_collect<const N: usize>(
        &self,
        gauges: [&'static Metric; N],
        collect: impl Fn(&Metrics) + Send + Sync + 'static,
    ) {
        let collect = move |metrics: &Metrics| {
            gauges.iter().for_each(|metric| metrics.0.families.clear(metric));
            collect(metrics);
        };
        self.0.collectors.lock().push(Box::new(collect));
    }

    /// The metrics in the text format of Prometheus.
    pub fn render(&self) -> String {
        self.0.collectors.lock().iter().for_each(|collect| collect(self));
        let mut queues = self.0.queues.lock();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        for (name, queue) in queues.iter() {
            let (all, longest) = queue.upgrade().map(|queue| queue.under_way()).unwrap_or_default();
            self.0.unfinished.with_label_values(&[*name]).set(all.as_secs_f64());
            self.0.longest.with_label_values(&[*name]).set(longest.as_secs_f64());
        }
        drop(queues);
        render(&self.0.registry)
    }
}

/// The metrics of a registry in the text format of Prometheus.
pub fn render(registry: &Registry) -> String {
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&registry.gather(), &mut text) {
        tracing::error!(%error, "failed to encode metrics");
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::WorkResult;

    #[tokio::test(start_paused = true)]
    async fn queues_have_metrics() {
        let metrics = Metrics::default();
        let queue = metrics.queue("deployment");
        for key in ["a", "b", "a"] {
            queue.add(key.into());
        }
        let key = queue.next().await.expect("a key");
        tokio::time::sleep(Duration::from_secs(3)).await;
        let text = metrics.render();
        let check = |text: &str, line: &str| assert!(text.contains(line), "{line} is not in\n{text}");
        check(&text, "workqueue_depth{name=\"deployment\"} 1");
        check(&text, "workqueue_adds_total{name=\"deployment\"} 2");
        check(&text, "workqueue_unfinished_work_seconds{name=\"deployment\"} 3");
        check(&text, "workqueue_longest_running_processor_seconds{name=\"deployment\"} 3");
        check(&text, "workqueue_queue_duration_seconds_count{name=\"deployment\"} 1");
        queue.done(key, WorkResult::Failed);
        let text = metrics.render();
        check(&text, "workqueue_retries_total{name=\"deployment\"} 1");
        check(&text, "workqueue_work_duration_seconds_sum{name=\"deployment\"} 3");
        check(&text, "workqueue_unfinished_work_seconds{name=\"deployment\"} 0");
    }

    #[test]
    fn components_define_their_own_metrics() {
        static SYNCS: Metric = Metric::counter("job_syncs_total", "Looks.", &["result"]);
        static AGE: Metric = Metric::histogram("age", "Ages.", &[], (1.0, 2.0, 3));
        static SIZE: Metric = Metric::gauge("size", "Sizes.", &["zone"]);
        let metrics = Metrics::default();
        assert!(!metrics.render().contains("job_syncs_total"), "nothing was counted");
        metrics.count(&SYNCS, &["success"]);
        metrics.record(&SYNCS, &["success"], 2.0);
        metrics.record(&AGE, &[], 3.0);
        let zones = Arc::new(Mutex::new(vec![("a", 2.0), ("b", 1.0)]));
        let seen = zones.clone();
        metrics.on_collect([&SIZE], move |metrics| {
            for (zone, size) in seen.lock().iter() {
                metrics.record(&SIZE, &[zone], *size);
            }
        });
        let text = metrics.render();
        for line in ["job_syncs_total{result=\"success\"} 3", "age_bucket{le=\"4\"} 1", "size{zone=\"b\"} 1"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        zones.lock().pop();
        assert!(!metrics.render().contains("size{zone=\"b\"}"), "a removed zone is not rendered");
        metrics.forget(&SYNCS, &["success"]);
        assert!(!metrics.render().contains("job_syncs_total{"));
        // The wrong number of labels is only logged.
        metrics.count(&SYNCS, &[]);
    }
}
