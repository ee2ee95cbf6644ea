//! The metrics of fairness, under upstream's names.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::plan::Plan;
use crate::metrics::registered;

pub(crate) struct FlowMetrics {
    dispatched: IntCounterVec,
    rejected: IntCounterVec,
    waited: HistogramVec,
    gauges: Vec<(LevelGauge, IntGaugeVec)>,
}

/// The series of one schema, looked up once.
pub(crate) struct SchemaMetrics {
    pub dispatched: IntCounter,
    pub waited: Histogram,
}

#[derive(Clone, Copy)]
enum LevelGauge {
    Nominal,
    Limit,
    ExecutingSeats,
    Executing,
    Waiting,
    WaitingSeats,
}

const GAUGES: &[(LevelGauge, &str, &str)] = &[
    (
        LevelGauge::Nominal,
        "apiserver_flowcontrol_nominal_limit_seats",
        "Nominal number of execution seats configured for each priority level",
    ),
    (
        LevelGauge::Limit,
        "apiserver_flowcontrol_current_limit_seats",
        "current derived number of execution seats available to each priority level",
    ),
    (
        LevelGauge::ExecutingSeats,
        "apiserver_flowcontrol_current_executing_seats",
        "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
    ),
    (
        LevelGauge::Executing,
        "apiserver_flowcontrol_current_executing_requests",
        "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
    ),
    (
        LevelGauge::Waiting,
        "apiserver_flowcontrol_current_inqueue_requests",
        "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
    ),
    (
        LevelGauge::WaitingSeats,
        "apiserver_flowcontrol_current_inqueue_seats",
        "Number of seats currently pending in queues of the API Priority and Fairness subsystem",
    ),
];

const BUCKETS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

impl FlowMetrics {
    pub(crate) fn new(registry: &Registry) -> FlowMetrics {
        let both = &["priority_level", "flow_schema"];
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec()), labels))
        };
        let gauge = |(shown, name, help): &(LevelGauge, &str, &str)| {
            (*shown, registered(registry, IntGaugeVec::new(Opts::new(*name, *help), &both[..1])))
        };
        FlowMetrics {
            dispatched: counter(
                "apiserver_flowcontrol_dispatched_requests_total",
                "Number of requests executed by API Priority and Fairness subsystem",
                both,
            ),
            rejected: counter(
                "apiserver_flowcontrol_rejected_requests_total",
                "Number of requests rejected by API Priority and Fairness subsystem",
                &["priority_level", "flow_schema", "reason"],
            ),
            waited: histogram(
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "Length of time a request spent waiting in its queue",
                both,
            ),
            gauges: GAUGES.iter().map(gauge).collect(),
        }
    }

    pub(crate) fn schema(&self, level: &str, schema: &str) -> SchemaMetrics {
        let labels = [level, schema];
        SchemaMetrics {
            dispatched: self.dispatched.with_label_values(&labels),
            waited: self.waited.with_label_values(&labels),
        }
    }

    pub(crate) fn reject(&self, level: &str, schema: &str, reason: &str) {
        self.rejected.with_label_values(&[level, schema, reason]).inc();
    }

    /// Gauges are set when they are read, and not maintained for each request.
    pub(crate) fn show(&self, plan: &Plan) {
        for priority in &plan.levels {
            let Some(level) = &priority.level else { continue };
            let (load, nominal) = (level.load(), level.bounds().nominal);
            for (shown, gauge) in &self.gauges {
                let value = match shown {
                    LevelGauge::Nominal => nominal,
                    LevelGauge::Limit => load.limit,
                    LevelGauge::ExecutingSeats => load.running_seats,
                    LevelGauge::Executing => load.running,
                    LevelGauge::Waiting => load.waiting,
                    LevelGauge::WaitingSeats => load.waiting_seats,
                };
                gauge.with_label_values(&[&priority.name]).set(i64::from(value));
            }
        }
    }
}
