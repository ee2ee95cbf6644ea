//! The bounds that flags set on requests and connections.

use std::time::Duration;

use stdx::sources::SourceLimits;

use super::info::RequestInfo;

/// The timeout for a handshake and for the headers of a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The limits from the flags; the defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Limits {
    pub request_timeout: Duration,
    /// A watch without a timeout gets a random one between this value and twice this value.
    pub min_request_timeout: Duration,
    pub max_requests_inflight: u32,
    pub max_mutating_requests_inflight: u32,
    /// Priority and fairness share out the sum of the two; without it each counts for itself.
    pub fairness: bool,
    pub http2_max_streams: u32,
    /// The probability that a request over HTTP/2 ends its connection: clients then spread over servers.
    pub goaway_chance: f64,
    /// How long a server that shuts down continues to serve while it is not ready.
    pub shutdown_delay: Duration,
    /// A client that has not finished its handshake, or then its first request, in this time is disconnected.
    pub first_request_timeout: Duration,
    /// The maximum number of connections of unauthenticated clients.
    pub unknown_connections: SourceLimits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            fairness: true,
            http2_max_streams: 100,
            goaway_chance: 0.0,
            shutdown_delay: Duration::ZERO,
            first_request_timeout: PATIENCE,
            unknown_connections: SourceLimits { total: 8192, per_source: 1024 },
        }
    }
}

/// Long-running requests: they have no deadline, and are not limited in number.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    let streams = ["attach", "exec", "proxy", "log", "portforward"];
    info.verb == "watch"
        || (info.is_resource && streams.contains(&info.subresource.as_str()))
        || (!info.is_resource && info.path.starts_with("/debug/pprof/"))
}
