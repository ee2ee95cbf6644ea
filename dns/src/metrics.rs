//! Metrics with CoreDNS' names. Counters that every query touches are looked up once for a server block.

use std::sync::{Arc, OnceLock};

use client::metrics::register;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, exponential_buckets,
};

use crate::message::{Rcode, Type};

const SIZES: &[f64] = &[0.0, 100.0, 200.0, 300.0, 400.0, 511.0, 1023.0, 2047.0, 4095.0, 8291.0, 16e3, 32e3, 48e3, 64e3];

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    queries: QueryMetrics,
    /// The metrics of caches.
    pub cache: CacheMetrics,
    /// The metrics of forwarded queries.
    pub forward: ForwardMetrics,
    /// Caught panics.
    pub panics: IntCounter,
    /// The plugins of each server block.
    pub plugin_enabled: IntGaugeVec,
    /// The entries of hosts tables.
    pub hosts_entries: IntGaugeVec,
    /// Failed reloads of the Corefile.
    pub reload_failures: IntCounter,
    /// Queries above the rate limit of their source.
    pub rate_limited: IntCounterVec,
    autopath_successes: IntCounterVec,
}

struct QueryMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    request_sizes: HistogramVec,
    response_sizes: HistogramVec,
    dnssec_requests: IntCounterVec,
    responses: IntCounterVec,
}

/// The metrics of caches.
pub struct CacheMetrics {
    /// Cached responses.
    pub entries: IntGaugeVec,
    /// Lookups.
    pub requests: IntCounterVec,
    /// Lookups that found an entry.
    pub hits: IntCounterVec,
    /// Lookups that found no entry.
    pub misses: IntCounterVec,
    /// Entries that were refreshed before they expired.
    pub prefetches: IntCounterVec,
    /// Responses from expired entries.
    pub stale: IntCounterVec,
    /// Entries that were removed because the cache was full.
    pub evictions: IntCounterVec,
}

/// The metrics of forwarded queries.
pub struct ForwardMetrics {
    /// Response times of upstreams.
    pub proxy_durations: HistogramVec,
    /// Failed health checks of upstreams.
    pub healthcheck_failures: IntCounterVec,
    /// Queries while every upstream failed its health checks.
    pub healthcheck_broken: IntCounter,
    /// Queries above the limit of concurrent queries.
    pub concurrent_rejects: IntCounter,
}

fn counter(name: &str, help: &str, registry: &Registry) -> IntCounter {
    register(IntCounter::new(name, help), registry)
}

fn counters(name: &str, help: &str, labels: &[&str], registry: &Registry) -> IntCounterVec {
    register(IntCounterVec::new(Opts::new(name, help), labels), registry)
}

fn gauges(name: &str, help: &str, labels: &[&str], registry: &Registry) -> IntGaugeVec {
    register(IntGaugeVec::new(Opts::new(name, help), labels), registry)
}

fn histograms(name: &str, help: &str, labels: &[&str], buckets: Vec<f64>, registry: &Registry) -> HistogramVec {
    register(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels), registry)
}

impl Default for Metrics {
    fn default() -> Metrics {
        let registry = Registry::new();
        let on = &registry;
        Metrics {
            queries: QueryMetrics::new(on),
            cache: CacheMetrics::new(on),
            forward: ForwardMetrics::new(on),
            panics: counter("coredns_panics_total", "A metrics that counts the number of panics.", on),
            plugin_enabled: gauges(
                "coredns_plugin_enabled",
                "A metric that indicates whether a plugin is enabled on per server and zone basis.",
                &["server", "zone", "view", "name"],
                on,
            ),
            hosts_entries: gauges(
                "coredns_hosts_entries",
                "The combined number of entries in hosts and Corefile.",
                &["hostsfile"],
                on,
            ),
            reload_failures: counter(
                "coredns_reload_failed_total",
                "Counter of the number of failed reload attempts.",
                on,
            ),
            rate_limited: counters(
                "tiphys_dns_rate_limited_total",
                "Queries that were not answered because their source sent too many.",
                &["proto"],
                on,
            ),
            autopath_successes: counters(
                "coredns_autopath_success_total",
                "Counter of requests that did autopath.",
                &["server"],
                on,
            ),
            registry,
        }
        .with_build_info()
    }
}

impl QueryMetrics {
    fn new(on: &Registry) -> QueryMetrics {
        let zone = &["server", "zone", "view"];
        let with_proto = &["server", "zone", "view", "proto"];
        QueryMetrics {
            requests: counters(
                "coredns_dns_requests_total",
                "Counter of DNS requests made per zone, protocol and family.",
                &["server", "zone", "view", "proto", "family", "type"],
                on,
            ),
            durations: histograms(
                "coredns_dns_request_duration_seconds",
                "Histogram of the time (in seconds) each request took per zone.",
                zone,
                times(),
                on,
            ),
            request_sizes: histograms(
                "coredns_dns_request_size_bytes",
                "Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.",
                with_proto,
                SIZES.to_vec(),
                on,
            ),
            response_sizes: histograms(
                "coredns_dns_response_size_bytes",
                "Size of the returned response in bytes.",
                with_proto,
                SIZES.to_vec(),
                on,
            ),
            dnssec_requests: counters(
                "coredns_dns_do_requests_total",
                "Counter of DNS requests with DO bit set per zone.",
                zone,
                on,
            ),
            responses: counters(
                "coredns_dns_responses_total",
                "Counter of response status codes.",
                &["server", "zone", "view", "rcode", "plugin"],
                on,
            ),
        }
    }
}

impl CacheMetrics {
    fn new(on: &Registry) -> CacheMetrics {
        let cache = &["server", "zones", "view"];
        let cache_type = &["server", "type", "zones", "view"];
        CacheMetrics {
            entries: gauges("coredns_cache_entries", "The number of elements in the cache.", cache_type, on),
            requests: counters("coredns_cache_requests_total", "The count of cache requests.", cache, on),
            hits: counters("coredns_cache_hits_total", "The count of cache hits.", cache_type, on),
            misses: counters(
                "coredns_cache_misses_total",
                "The count of cache misses. Deprecated, derive misses from cache hits/requests counters.",
                cache,
                on,
            ),
            prefetches: counters(
                "coredns_cache_prefetch_total",
                "The number of times the cache has prefetched a cached item.",
                cache,
                on,
            ),
            stale: counters(
                "coredns_cache_served_stale_total",
                "The number of requests served from stale cache entries.",
                cache,
                on,
            ),
            evictions: counters("coredns_cache_evictions_total", "The count of cache evictions.", cache_type, on),
        }
    }
}

impl ForwardMetrics {
    fn new(on: &Registry) -> ForwardMetrics {
        ForwardMetrics {
            proxy_durations: histograms(
                "coredns_proxy_request_duration_seconds",
                "Histogram of the time each request took.",
                &["proxy_name", "to", "rcode"],
                times(),
                on,
            ),
            healthcheck_failures: counters(
                "coredns_proxy_healthcheck_failures_total",
                "Counter of the number of failed healthchecks.",
                &["proxy_name", "to"],
                on,
            ),
            healthcheck_broken: counter(
                "coredns_forward_healthcheck_broken_total",
                "Counter of the number of complete failures of the healthchecks.",
                on,
            ),
            concurrent_rejects: counter(
                "coredns_forward_max_concurrent_rejects_total",
                "Counter of the number of queries rejected because the concurrent queries were at maximum.",
                on,
            ),
        }
    }
}

fn times() -> Vec<f64> {
    exponential_buckets(0.00025, 2.0, 16).unwrap_or_default()
}

impl Metrics {
    fn with_build_info(self) -> Metrics {
        let info = gauges(
            "coredns_build_info",
            "A metric with a constant '1' value labeled by version, revision, and goversion from which CoreDNS was built.",
            &["version", "revision", "goversion"],
            &self.registry,
        );
        info.with_label_values(&[env!("CARGO_PKG_VERSION"), "", ""]).set(1);
        self
    }

    /// The text format of Prometheus.
    pub fn render(&self) -> String {
        client::metrics::render(&self.registry)
    }
}

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The server itself.
    Server,
    /// Plugin `hosts`.
    Hosts,
    /// Plugin `kubernetes`.
    Kubernetes,
    /// Plugin `cache`.
    Cache,
    /// Plugin `forward`.
    Forward,
    /// Plugin `loop`.
    Loop,
}

const SOURCES: [&str; 6] = ["", "hosts", "kubernetes", "cache", "forward", "loop"];

/// The types that are counted by name, as in CoreDNS.
const TYPES: [Type; 17] = [
    Type::A,
    Type::AAAA,
    Type::SRV,
    Type::PTR,
    Type::TXT,
    Type::CNAME,
    Type::NS,
    Type::SOA,
    Type::MX,
    Type::HTTPS,
    Type::SVCB,
    Type::DS,
    Type::DNSKEY,
    Type::RRSIG,
    Type::NSEC,
    Type::ANY,
    Type::AXFR,
];

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Transport {
    /// The name in labels.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}

/// A query and its response, as they are counted.
pub struct Exchange {
    /// The transport of the query.
    pub transport: Transport,
    /// Whether the client has an IPv6 address.
    pub is_ipv6: bool,
    /// The type of the question.
    pub qtype: Type,
    /// Whether the query requests the records of DNSSEC.
    pub dnssec_ok: bool,
    /// The size of the query in bytes.
    pub request_size: usize,
    /// The size of the response in bytes.
    pub response_size: usize,
    /// The response code.
    pub rcode: Rcode,
    /// The plugin that has built the response.
    pub source: Source,
    /// How long it took.
    pub seconds: f64,
}

/// The metrics of a server block.
pub struct BlockMetrics {
    metrics: Arc<Metrics>,
    server: String,
    zone: String,
    duration: Histogram,
    request_sizes: [Histogram; 2],
    response_sizes: [Histogram; 2],
    dnssec_requests: IntCounter,
    autopath_successes: IntCounter,
    requests: [OnceLock<IntCounter>; 4 * (TYPES.len() + 1)],
    responses: [OnceLock<IntCounter>; SOURCES.len() * 16],
}

impl BlockMetrics {
    /// The metrics of a block that serves a zone at an address.
    pub fn new(metrics: Arc<Metrics>, server: &str, zone: &str) -> BlockMetrics {
        let sizes = |of: &HistogramVec| ["udp", "tcp"].map(|proto| of.with_label_values(&[server, zone, "", proto]));
        BlockMetrics {
            duration: metrics.queries.durations.with_label_values(&[server, zone, ""]),
            request_sizes: sizes(&metrics.queries.request_sizes),
            response_sizes: sizes(&metrics.queries.response_sizes),
            dnssec_requests: metrics.queries.dnssec_requests.with_label_values(&[server, zone, ""]),
            autopath_successes: metrics.autopath_successes.with_label_values(&[server]),
            requests: std::array::from_fn(|_| OnceLock::new()),
            responses: std::array::from_fn(|_| OnceLock::new()),
            server: server.to_string(),
            zone: zone.to_string(),
            metrics,
        }
    }

    /// Counts a query.
    pub fn record(&self, exchange: &Exchange) {
        let transport = exchange.transport as usize;
        self.request_counter(exchange).inc();
        self.response_counter(exchange.rcode, exchange.source).inc();
        self.request_sizes[transport].observe(exchange.request_size as f64);
        self.response_sizes[transport].observe(exchange.response_size as f64);
        self.duration.observe(exchange.seconds);
        if exchange.dnssec_ok {
            self.dnssec_requests.inc();
        }
    }

    /// Counts a query whose search path the server has completed.
    pub fn record_autopath(&self) {
        self.autopath_successes.inc();
    }

    fn request_counter(&self, exchange: &Exchange) -> &IntCounter {
        let kind = TYPES.iter().position(|known| *known == exchange.qtype).unwrap_or(TYPES.len());
        let family = usize::from(exchange.is_ipv6);
        let at = (kind * 2 + family) * 2 + exchange.transport as usize;
        self.requests[at].get_or_init(|| {
            let kind = TYPES.get(kind).and_then(|known| known.name()).unwrap_or("other");
            let (proto, family) = (exchange.transport.name(), if family == 1 { "2" } else { "1" });
            self.metrics.queries.requests.with_label_values(&[&*self.server, &self.zone, "", proto, family, kind])
        })
    }

    fn response_counter(&self, rcode: Rcode, source: Source) -> &IntCounter {
        let at = source as usize * 16 + usize::from(rcode.0).min(15);
        self.responses[at].get_or_init(|| {
            let labels = [&*self.server, &self.zone, "", &rcode.to_string(), SOURCES[source as usize]];
            self.metrics.queries.responses.with_label_values(&labels)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_with_the_names_of_coredns() {
        let metrics = Arc::new(Metrics::default());
        let block = BlockMetrics::new(metrics.clone(), "dns://:53", ".");
        let exchange = Exchange {
            transport: Transport::Udp,
            is_ipv6: false,
            qtype: Type::A,
            dnssec_ok: false,
            request_size: 40,
            response_size: 120,
            rcode: Rcode::NAME_ERROR,
            source: Source::Kubernetes,
            seconds: 0.0001,
        };
        block.record(&exchange);
        block.record(&Exchange { qtype: Type(9999), transport: Transport::Tcp, is_ipv6: true, ..exchange });
        let text = metrics.render();
        for line in [
            r#"coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="A",view="",zone="."} 1"#,
            r#"coredns_dns_requests_total{family="2",proto="tcp",server="dns://:53",type="other",view="",zone="."} 1"#,
            r#"coredns_dns_responses_total{plugin="kubernetes",rcode="NXDOMAIN",server="dns://:53",view="",zone="."} 2"#,
            r#"coredns_dns_request_duration_seconds_count{server="dns://:53",view="",zone="."} 2"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
