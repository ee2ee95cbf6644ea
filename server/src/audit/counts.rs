//! The metrics of audit, under upstream's names.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use crate::request::audit::Level;

/// The metrics of the audit log.
pub struct Counts {
    pub events: IntCounter,
    lost: IntCounterVec,
    pub rejected: IntCounter,
    levels: IntCounterVec,
    /// The counters by level, looked up once.
    pub by_level: [IntCounter; 4],
}

impl Counts {
    pub(crate) fn new() -> Counts {
        let events = IntCounter::new(
            "apiserver_audit_event_total",
            "Counter of audit events generated and sent to the audit backend.",
        );
        let lost = IntCounterVec::new(
            Opts::new(
                "apiserver_audit_error_total",
                "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
            ),
            &["plugin"],
        );
        let rejected = IntCounter::new(
            "apiserver_audit_requests_rejected_total",
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
        );
        let levels =
            Opts::new("apiserver_audit_level_total", "Counter of policy levels for audit events (1 per request).");
        let levels = IntCounterVec::new(levels, &["level"]).expect("the name is valid");
        Counts {
            events: events.expect("the name is valid"),
            lost: lost.expect("the name is valid"),
            rejected: rejected.expect("the name is valid"),
            by_level: Level::ALL.map(|level| levels.with_label_values(&[level.name()])),
            levels,
        }
    }

    pub(crate) fn lost(&self, plugin: &str, count: u64) {
        self.lost.with_label_values(&[plugin]).inc_by(count);
    }

    pub(crate) fn register(&self, registry: &Registry) {
        for collector in [
            Box::new(self.events.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(self.lost.clone()),
            Box::new(self.rejected.clone()),
            Box::new(self.levels.clone()),
        ] {
            // A second server of the same process, in a test, has its own registry.
            let _ = registry.register(collector);
        }
    }
}
