//! Metrics of match conditions, under upstream's names. Authorizers exist before the server that registers these, and
//! are replaced while it runs: the metrics belong to the process.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::metrics::registered;

const BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const LABELS: &[&str] = &["type", "name"];

static METRICS: LazyLock<ConditionMetrics> = LazyLock::new(ConditionMetrics::new);

struct ConditionMetrics {
    errors: IntCounterVec,
    exclusions: IntCounterVec,
    evaluation: HistogramVec,
}

impl ConditionMetrics {
    fn new() -> ConditionMetrics {
        let name = |metric: &str| format!("apiserver_authorization_match_condition_{metric}");
        let counter = |metric: &str, help: &str| {
            IntCounterVec::new(Opts::new(name(metric), help), LABELS).expect("the name and its labels are valid")
        };
        let options = HistogramOpts::new(
            name("evaluation_seconds"),
            "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
        );
        let evaluation = HistogramVec::new(options.buckets(BUCKETS.to_vec()), LABELS);
        ConditionMetrics {
            errors: counter(
                "evaluation_errors_total",
                "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
            ),
            exclusions: counter(
                "exclusions_total",
                "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
            ),
            evaluation: evaluation.expect("the name and its labels are valid"),
        }
    }
}

/// Adds the metrics to those of a server.
pub(crate) fn register(registry: &Registry) {
    registered(registry, Ok(METRICS.errors.clone()));
    registered(registry, Ok(METRICS.exclusions.clone()));
    registered(registry, Ok(METRICS.evaluation.clone()));
}

/// An evaluation of the conditions of a webhook.
pub(super) fn observe(name: &str, is_met: bool, has_failed: bool, took: Duration) {
    let labels = ["Webhook", name];
    METRICS.evaluation.with_label_values(&labels).observe(took.as_secs_f64());
    if has_failed {
        METRICS.errors.with_label_values(&labels).inc();
    }
    if !is_met {
        METRICS.exclusions.with_label_values(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_are_counted_by_authorizer() {
        let registry = Registry::new();
        register(&registry);
        observe("counted", true, true, Duration::ZERO);
        observe("counted", false, false, Duration::ZERO);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        for (metric, count) in
            [("evaluation_errors_total", 1), ("exclusions_total", 1), ("evaluation_seconds_count", 2)]
        {
            let line = format!(
                "apiserver_authorization_match_condition_{metric}{{name=\"counted\",type=\"Webhook\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
