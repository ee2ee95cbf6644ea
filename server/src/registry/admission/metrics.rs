//! How long admission takes, and what becomes of webhooks' calls, under upstream's names. A plugin's series
//! are found once, since every write passes all plugins.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::webhook::matching::operation_name;
use super::{Operation, Plugin, Setup};
use crate::metrics::registered;

/// The half of admission, as upstream calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Admit,
    Validate,
}

impl Half {
    fn name(self) -> &'static str {
        match self {
            Half::Admit => "admit",
            Half::Validate => "validate",
        }
    }

    /// Counters of validating webhooks have another word for it.
    fn of_webhooks(self) -> &'static str {
        match self {
            Half::Admit => "admit",
            Half::Validate => "validating",
        }
    }
}

/// How a webhook's call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Refused(u16),
    /// The call failed; the second is true if the request continues without it.
    Failed(u16, bool),
    /// Its patch could not be used.
    Broken,
}

const PLUGIN_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

pub(crate) struct AdmissionMetrics {
    step: HistogramVec,
    controller: HistogramVec,
    webhook: HistogramVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
    requests: IntCounterVec,
    steps: Series,
    /// In the order of the plugins that are on.
    controllers: Vec<Series>,
}

/// One histogram for each half, operation and verdict; most of them are never needed.
#[derive(Default)]
struct Series([OnceLock<Histogram>; 16]);

impl Series {
    fn get(&self, half: Half, operation: Operation, rejected: bool, make: impl FnOnce() -> Histogram) -> &Histogram {
        let at = (half as usize * 4 + operation as usize) * 2 + usize::from(rejected);
        self.0[at].get_or_init(make)
    }
}

impl AdmissionMetrics {
    pub(crate) fn new(registry: &Registry, setup: &Setup) -> AdmissionMetrics {
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let options = HistogramOpts::new(format!("apiserver_admission_{name}"), help).buckets(buckets.to_vec());
            registered(registry, HistogramVec::new(options, labels))
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(format!("apiserver_admission_{name}"), help), labels))
        };
        let named = &["name", "type", "operation", "rejected"];
        AdmissionMetrics {
            step: histogram(
                "step_admission_duration_seconds",
                "Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
                PLUGIN_BUCKETS,
                &named[1..],
            ),
            controller: histogram(
                "controller_admission_duration_seconds",
                "Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                PLUGIN_BUCKETS,
                named,
            ),
            webhook: histogram(
                "webhook_admission_duration_seconds",
                "Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                WEBHOOK_BUCKETS,
                named,
            ),
            rejections: counter(
                "webhook_rejection_count",
                "Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            ),
            fail_open: counter(
                "webhook_fail_open_count",
                "Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
                &["name", "type"],
            ),
            requests: counter(
                "webhook_request_total",
                "Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["name", "type", "operation", "code", "rejected"],
            ),
            steps: Series::default(),
            controllers: setup.plugins().map(|_| Series::default()).collect(),
        }
    }

    /// A plugin by its place among those that are on.
    pub(crate) fn plugin(
        &self,
        (at, plugin): (usize, &Plugin),
        half: Half,
        operation: Operation,
        rejected: bool,
        took: Duration,
    ) {
        let Some(series) = self.controllers.get(at) else { return };
        let labels = [plugin.name, half.name(), operation_name(operation), bool_name(rejected)];
        let make = || self.controller.with_label_values(&labels);
        series.get(half, operation, rejected, make).observe(took.as_secs_f64());
    }

    pub(crate) fn half(&self, half: Half, operation: Operation, rejected: bool, took: Duration) {
        let labels = [half.name(), operation_name(operation), bool_name(rejected)];
        let make = || self.step.with_label_values(&labels);
        self.steps.get(half, operation, rejected, make).observe(took.as_secs_f64());
    }

    pub(crate) fn webhook(&self, name: &str, half: Half, operation: Operation, outcome: Outcome, took: Duration) {
        let (code, error) = match outcome {
            Outcome::Allowed => (200, None),
            Outcome::Refused(code) => (code, Some("no_error")),
            Outcome::Failed(code, true) => (code, None),
            Outcome::Failed(code, false) => (code, Some("calling_webhook_error")),
            Outcome::Broken => (0, Some("apiserver_internal_error")),
        };
        // A webhook must not make a series for each code it can think of.
        let code = code.min(600).to_string();
        let (kind, operation) = (half.of_webhooks(), operation_name(operation));
        if let Some(error) = error {
            self.rejections.with_label_values(&[name, kind, operation, error, &code]).inc();
        }
        if matches!(outcome, Outcome::Failed(_, true)) {
            self.fail_open.with_label_values(&[name, kind]).inc();
        }
        let rejected = bool_name(error.is_some());
        self.requests.with_label_values(&[name, kind, operation, &code, rejected]).inc();
        self.webhook.with_label_values(&[name, kind, operation, rejected]).observe(took.as_secs_f64());
    }
}

fn bool_name(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_a_call_has_its_series() {
        let registry = Registry::new();
        let setup = Setup::default();
        let metrics = AdmissionMetrics::new(&registry, &setup);
        let ends = [
            ("a", Outcome::Allowed),
            ("b", Outcome::Refused(418)),
            ("c", Outcome::Failed(503, false)),
            ("d", Outcome::Failed(503, true)),
            ("e", Outcome::Broken),
            ("f", Outcome::Refused(6000)),
        ];
        for (name, outcome) in ends {
            metrics.webhook(name, Half::Validate, Operation::Create, outcome, Duration::ZERO);
        }
        let first = setup.plugins().next().expect("a plugin");
        metrics.plugin((0, first), Half::Admit, Operation::Connect, true, Duration::ZERO);
        metrics.half(Half::Validate, Operation::Delete, false, Duration::ZERO);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let has = |line: String| assert!(text.contains(&line), "{line} is not in\n{text}");
        let rejected = |name: &str, error: &str, code: &str| {
            has(format!(
                "webhook_rejection_count{{error_type=\"{error}\",name=\"{name}\",operation=\"CREATE\",rejection_code=\"{code}\",type=\"validating\"}} 1"
            ));
        };
        rejected("b", "no_error", "418");
        rejected("c", "calling_webhook_error", "503");
        rejected("e", "apiserver_internal_error", "0");
        rejected("f", "no_error", "600");
        assert!(!text.contains("webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"d\""));
        has("webhook_fail_open_count{name=\"d\",type=\"validating\"} 1".to_string());
        has("webhook_request_total{code=\"200\",name=\"a\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"} 1".to_string());
        has(format!(
            "controller_admission_duration_seconds_count{{name=\"{}\",operation=\"CONNECT\",rejected=\"true\",type=\"admit\"}} 1",
            first.name
        ));
        has("step_admission_duration_seconds_count{operation=\"DELETE\",rejected=\"false\",type=\"validate\"} 1"
            .to_string());
    }
}
