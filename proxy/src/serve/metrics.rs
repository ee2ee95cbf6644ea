//! Metrics, with upstream's names.

use client::Metric;

const BUCKETS: (f64, f64, usize) = (0.001, 2.0, 15);
const FAMILY: &[&str] = &["ip_family"];

pub(crate) static SYNC_DURATION: Metric = Metric::histogram(
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "SyncProxyRules latency in seconds",
    FAMILY,
    BUCKETS,
);
pub(crate) static FULL_SYNC_DURATION: Metric = Metric::histogram(
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "SyncProxyRules latency in seconds for full resyncs",
    FAMILY,
    BUCKETS,
);
pub(crate) static PARTIAL_SYNC_DURATION: Metric = Metric::histogram(
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "SyncProxyRules latency in seconds for partial resyncs",
    FAMILY,
    BUCKETS,
);
pub(crate) static LAST_SYNC: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    "The last time proxy rules were successfully synced",
    FAMILY,
);
pub(crate) static LAST_QUEUED: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    "The last time a sync of proxy rules was queued",
    FAMILY,
);
pub(crate) static PROGRAMMING_DURATION: Metric = Metric::histogram_of(
    "kubeproxy_network_programming_duration_seconds",
    "In Cluster Network Programming Latency in seconds",
    FAMILY,
    &PROGRAMMING_BUCKETS,
);
pub(crate) static ENDPOINT_CHANGES_PENDING: Metric =
    Metric::gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes", &[]);
pub(crate) static ENDPOINT_CHANGES: Metric = Metric::counter(
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "Cumulative proxy rules Endpoint changes",
    &[],
);
pub(crate) static SERVICE_CHANGES_PENDING: Metric =
    Metric::gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes", &[]);
pub(crate) static SERVICE_CHANGES: Metric =
    Metric::counter("kubeproxy_sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes", &[]);
pub(crate) static NFTABLES_FAILURES: Metric = Metric::counter(
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    "Cumulative proxy nftables sync failures",
    FAMILY,
);
pub(crate) static IPTABLES_FAILURES: Metric = Metric::counter(
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "Cumulative proxy iptables restore failures",
    FAMILY,
);
pub(crate) static HEALTHZ: Metric =
    Metric::counter("kubeproxy_proxy_healthz_total", "Cumulative proxy healthz HTTP status", &["code"]);
pub(crate) static LIVEZ: Metric =
    Metric::counter("kubeproxy_proxy_livez_total", "Cumulative proxy livez HTTP status", &["code"]);
pub(crate) static NO_LOCAL_ENDPOINTS: Metric = Metric::gauge(
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "Number of services with a Local traffic policy and no endpoints",
    &["traffic_policy", "ip_family"],
);
pub(crate) static DELETED_CONNECTIONS: Metric = Metric::counter(
    "kubeproxy_conntrack_reconciler_deleted_entries_total",
    "Cumulative conntrack flows deleted by conntrack reconciler",
    FAMILY,
);

/// From a quarter of a second to five minutes.
static PROGRAMMING_BUCKETS: [f64; 80] = {
    let mut buckets = [0.0; 80];
    let mut at = 0;
    while at < 80 {
        buckets[at] = match at {
            0..2 => 0.25 * (at + 1) as f64,
            2..61 => (at - 1) as f64,
            61..73 => 60.0 + 5.0 * (at - 61) as f64,
            _ => 120.0 + 30.0 * (at - 73) as f64,
        };
        at += 1;
    }
    buckets
};
