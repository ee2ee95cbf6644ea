//! Counters of queues, events and informers under upstream's names, in the classic text format, and what
//! components count of their own.

mod meter;

use std::sync::{Arc, Weak};

use prometheus::core::Collector;
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder, exponential_buckets,
};
use stdx::sync::Mutex;

use crate::Queue;
use meter::Meters;
pub use meter::{Meter, Sort};

/// Looks at what there is and sets gauges by it.
type Look = Box<dyn Fn(&Metrics) + Send + Sync>;

/// What a process counts. Clones count into the same.
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
    meters: Meters,
    looks: Mutex<Vec<Look>>,
}

/// What one queue counts.
pub struct QueueMetrics {
    pub depth: IntGauge,
    pub adds: IntCounter,
    pub waited: Histogram,
    pub worked: Histogram,
    pub retries: IntCounter,
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
            depth: known(gauges("workqueue_depth", "Keys that wait."), &registry),
            adds: known(counters("workqueue_adds_total", "Keys that were added.", "name"), &registry),
            waited: known(times("workqueue_queue_duration_seconds", "How long keys waited."), &registry),
            worked: known(times("workqueue_work_duration_seconds", "How long the work on keys took."), &registry),
            unfinished: known(
                floats("workqueue_unfinished_work_seconds", "How long the work under way has taken, in all."),
                &registry,
            ),
            longest: known(
                floats("workqueue_longest_running_processor_seconds", "How long the longest of it has taken."),
                &registry,
            ),
            retries: known(counters("workqueue_retries_total", "Keys that came back.", "name"), &registry),
            events: known(counters("tiphys_events_total", "Events by what became of them.", "result"), &registry),
            panics: known(counters("tiphys_controller_panics_total", "Panics by controller.", "name"), &registry),
            leader: known(gauges("leader_election_master_status", "1 while this process leads."), &registry),
            registry,
            queues: Mutex::default(),
            meters: Meters::default(),
            looks: Mutex::default(),
        };
        Metrics(Arc::new(inner))
    }
}

/// Takes a collector into a registry. Names are constants, and each is registered once.
pub fn known<C: Collector + Clone + 'static>(collector: prometheus::Result<C>, registry: &Registry) -> C {
    let collector = collector.expect("the names are valid");
    registry.register(Box::new(collector.clone())).expect("each collector is registered once");
    collector
}

impl Metrics {
    /// A queue that is counted under a name.
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

    pub fn event(&self, written: bool) {
        self.0.events.with_label_values(&[if written { "written" } else { "dropped" }]).inc();
    }

    pub fn panic(&self, controller: &str) {
        self.0.panics.with_label_values(&[controller]).inc();
    }

    pub fn leads(&self, name: &str, leads: bool) {
        self.0.leader.with_label_values(&[name]).set(leads.into());
    }

    /// Counts a value by a component's own meter.
    pub fn record(&self, meter: &'static Meter, labels: &[&str], value: f64) {
        self.0.meters.record(&self.0.registry, meter, labels, value);
    }

    pub fn count(&self, meter: &'static Meter, labels: &[&str]) {
        self.record(meter, labels, 1.0);
    }

    /// Counts no more by a meter under these labels: what they name is gone.
    pub fn forget(&self, meter: &'static Meter, labels: &[&str]) {
        self.0.meters.forget(meter, labels);
    }

    /// Sets gauges whenever somebody asks, so that nothing is counted that nobody looks at. Those of the
    /// meters begin empty each time.
    pub fn on_look<const N: usize>(
        &self,
        meters: [&'static Meter; N],
        look: impl Fn(&Metrics) + Send + Sync + 'static,
    ) {
        let look = move |metrics: &Metrics| {
            meters.iter().for_each(|meter| metrics.0.meters.clear(meter));
            look(metrics);
        };
        self.0.looks.lock().push(Box::new(look));
    }

    pub fn render(&self) -> String {
        self.0.looks.lock().iter().for_each(|look| look(self));
        let mut queues = self.0.queues.lock();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        for (name, queue) in queues.iter() {
            let (all, longest) = queue.upgrade().map(|queue| queue.under_way()).unwrap_or_default();
            self.0.unfinished.with_label_values(&[*name]).set(all.as_secs_f64());
            self.0.longest.with_label_values(&[*name]).set(longest.as_secs_f64());
        }
        drop(queues);
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.0.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics cannot be written");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Ended;

    #[tokio::test(start_paused = true)]
    async fn queues_are_counted() {
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
        queue.done(key, Ended::Failed);
        let text = metrics.render();
        check(&text, "workqueue_retries_total{name=\"deployment\"} 1");
        check(&text, "workqueue_work_duration_seconds_sum{name=\"deployment\"} 3");
        check(&text, "workqueue_unfinished_work_seconds{name=\"deployment\"} 0");
    }

    #[test]
    fn components_count_by_their_own_meters() {
        static SYNCS: Meter = Meter::counter("job_syncs_total", "Looks.", &["result"]);
        static AGE: Meter = Meter::histogram("age", "Ages.", &[], (1.0, 2.0, 3));
        static SIZE: Meter = Meter::gauge("size", "Sizes.", &["zone"]);
        let metrics = Metrics::default();
        assert!(!metrics.render().contains("job_syncs_total"), "nothing was counted");
        metrics.count(&SYNCS, &["success"]);
        metrics.record(&SYNCS, &["success"], 2.0);
        metrics.record(&AGE, &[], 3.0);
        let zones = Arc::new(Mutex::new(vec![("a", 2.0), ("b", 1.0)]));
        let seen = zones.clone();
        metrics.on_look([&SIZE], move |metrics| {
            for (zone, size) in seen.lock().iter() {
                metrics.record(&SIZE, &[zone], *size);
            }
        });
        let text = metrics.render();
        for line in ["job_syncs_total{result=\"success\"} 3", "age_bucket{le=\"4\"} 1", "size{zone=\"b\"} 1"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        zones.lock().pop();
        assert!(!metrics.render().contains("size{zone=\"b\"}"), "a zone that is gone is not shown");
        metrics.forget(&SYNCS, &["success"]);
        assert!(!metrics.render().contains("job_syncs_total{"));
        // The wrong number of labels is told in the log, and nothing else.
        metrics.count(&SYNCS, &[]);
    }
}
