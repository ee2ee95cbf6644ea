//! Metrics.

use client::Metric;

pub(super) static SYNC_DURATION: Metric = Metric::histogram(
    "tiphys_networkpolicy_sync_duration_seconds",
    "Duration of applying network policies in seconds.",
    &[],
    (0.001, 2.0, 15),
);
pub(super) static SYNC_FAILURES: Metric =
    Metric::counter("tiphys_networkpolicy_sync_failures_total", "Number of failures to apply network policies.", &[]);
pub(super) static REPAIRS: Metric = Metric::counter(
    "tiphys_networkpolicy_repairs_total",
    "Number of times that rules which another process had changed were replaced.",
    &[],
);
