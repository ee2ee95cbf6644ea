//! Counters and histograms under upstream's names.

use std::time::Duration;

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use stdx::sync::RwLock;

use crate::request::info::RequestInfo;

/// The metrics of the server and of its requests, in upstream's names.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    reading: IntGauge,
    mutating: IntGauge,
    watchers: IntGauge,
    tokens: [IntCounter; 3],
    /// Metrics of other components in this process.
    also: RwLock<Vec<RenderFn>>,
}

/// How a service account's token was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// The token should have been renewed, and is still accepted.
    Stale,
    Valid,
    /// Out of a secret.
    Legacy,
}

const TOKENS: [(&str, &str); 3] = [
    ("serviceaccount_stale_tokens_total", "Cumulative stale projected service account tokens used"),
    ("serviceaccount_valid_tokens_total", "Cumulative valid projected service account tokens used"),
    ("serviceaccount_legacy_tokens_total", "Cumulative legacy service account tokens used"),
];

/// Metrics as text.
pub type RenderFn = Box<dyn Fn() -> String + Send + Sync>;

/// Counts a request while it runs.
pub struct RequestGauge {
    gauge: prometheus::core::GenericGauge<prometheus::core::AtomicI64>,
}

impl Drop for RequestGauge {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

impl Metrics {
    /// Metrics in their own registry.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let labels = &["verb", "group", "version", "resource", "subresource", "code"];
        let requests = IntCounterVec::new(
            Opts::new(
                "apiserver_request_total",
                "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
            ),
            labels,
        );
        let options = HistogramOpts::new("apiserver_request_duration_seconds", "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.")
            .buckets(BUCKETS.to_vec());
        let durations = HistogramVec::new(options, &labels[..5]);
        let inflight = IntGaugeVec::new(
            Opts::new(
                "apiserver_current_inflight_requests",
                "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
            ),
            &["request_kind"],
        );
        let inflight = inflight.expect("the names are valid");
        let watchers = IntGauge::new(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
        );
        let metrics = Metrics {
            requests: requests.expect("the names are valid"),
            durations: durations.expect("the names are valid"),
            reading: inflight.with_label_values(&["readOnly"]),
            mutating: inflight.with_label_values(&["mutating"]),
            watchers: watchers.expect("the name is valid"),
            tokens: TOKENS.map(|(name, help)| IntCounter::new(name, help).expect("the name is valid")),
            registry,
            also: RwLock::default(),
        };
        let collectors: [Box<dyn prometheus::core::Collector>; 4] = [
            Box::new(metrics.requests.clone()),
            Box::new(metrics.durations.clone()),
            Box::new(inflight),
            Box::new(metrics.watchers.clone()),
        ];
        for collector in collectors {
            metrics.registry.register(collector).expect("each collector is registered once");
        }
        for counter in &metrics.tokens {
            metrics.registry.register(Box::new(counter.clone())).expect("each collector is registered once");
        }
        metrics
    }

    pub(crate) fn count_token(&self, used: TokenUse) {
        self.tokens[used as usize].inc();
    }

    /// Counts a request as running until the result is dropped.
    pub fn begin(&self, info: &RequestInfo) -> RequestGauge {
        let reads = matches!(info.verb, "get" | "list" | "watch");
        let gauge = if reads { &self.reading } else { &self.mutating };
        gauge.inc();
        RequestGauge { gauge: gauge.clone() }
    }

    /// Counts a request by its code and duration.
    pub fn finish(&self, info: &RequestInfo, code: u16, took: Duration) {
        // Unknown paths must not create new series.
        if !info.is_resource || code == 404 {
            return;
        }
        let mut digits = itoa::Buffer::new();
        let verb = upper(info.verb);
        let base = [verb, &info.group, &info.version, &info.resource, &info.subresource];
        self.durations.with_label_values(&base).observe(took.as_secs_f64());
        let all = [verb, &info.group, &info.version, &info.resource, &info.subresource, digits.format(code)];
        self.requests.with_label_values(&all).inc();
    }

    /// The registry, for the metrics of other parts of the process.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics in the text format of Prometheus.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to a Vec does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        let also = self.also.read();
        also.iter().for_each(|also| out.extend(also().into_bytes()));
        out
    }

    /// Shows what a component counts that runs in this process.
    pub fn show_also(&self, also: RenderFn) {
        self.also.write().push(also);
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn upper(verb: &'static str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        other => other,
    }
}

/// Names are constants: the first test that starts a server finds an invalid or a duplicate one.
pub fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    collector: prometheus::Result<C>,
) -> C {
    let collector = collector.expect("the name and its labels are valid");
    registry.register(Box::new(collector.clone())).expect("each collector is registered once");
    collector
}
