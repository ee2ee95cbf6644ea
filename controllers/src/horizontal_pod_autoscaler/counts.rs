//! The metrics of the horizontal pod autoscaler.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::Metrics;

use super::plan::Event;
use crate::metrics;

/// The result of one reconcile.
#[derive(Debug, Default)]
pub(crate) struct ReconcileMetrics {
    action: Option<&'static str>,
    /// The first error is reported.
    error: Option<&'static str>,
    readings: Vec<(String, bool, Duration)>,
}

impl ReconcileMetrics {
    pub(super) fn act(&mut self, from: i64, to: i64) {
        self.action = Some(if to > from { "scale_up" } else { "scale_down" });
    }

    pub(super) fn fail(&mut self, error: &'static str) {
        self.error.get_or_insert(error);
    }

    /// Counts failures from the events.
    pub(crate) fn record_failures(&mut self, events: &[Event]) {
        let fails = |event: &Event| matches!(&*event.reason, "FailedComputeMetricsReplicas" | "FailedRescale");
        if events.iter().any(fails) {
            self.fail("internal");
        }
    }

    pub(super) fn metric(&mut self, kind: &str, is_ok: bool, took: Duration) {
        self.readings.push((kind.to_string(), is_ok, took));
    }

    pub(super) fn end(mut self, metrics: &Metrics, is_ok: bool, took: Duration) {
        if !is_ok {
            self.fail("internal");
        }
        let action = self.action.unwrap_or("none");
        let labels = [action, self.error.unwrap_or("none")];
        metrics.count(&metrics::HPA_RECONCILIATIONS, &labels);
        metrics.record(&metrics::HPA_RECONCILIATION_DURATION, &labels, took.as_secs_f64());
        for (kind, is_ok, took) in &self.readings {
            let labels = if *is_ok { [action, "none", kind] } else { ["none", "internal", kind] };
            metrics.count(&metrics::HPA_COMPUTATIONS, &labels);
            metrics.record(&metrics::HPA_COMPUTATION_DURATION, &labels, took.as_secs_f64());
        }
    }
}

pub(super) fn show(metrics: &Metrics, autoscalers: &[Arc<Tree>]) {
    metrics.record(&metrics::HPA_NUMBER, &[], autoscalers.len() as f64);
    for autoscaler in autoscalers {
        let labels = [autoscaler.str("metadata.namespace"), autoscaler.str("metadata.name")];
        let desired = autoscaler.int("status.desiredReplicas").unwrap_or(0);
        metrics.record(&metrics::HPA_DESIRED, &labels, desired as f64);
    }
}
