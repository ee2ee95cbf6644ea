//! The bounds that flags set on requests and connections.

use std::time::Duration;

use stdx::sources::SourceLimits;

use super::info::RequestInfo;

/// How long a client may take for its handshake, or for the headers of a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the flags say; the defaults are upstream's.
#[derive(Debug, Clone)]
pub struct Limits {
    pub request_timeout: Duration,
    /// A watch that names no timeout gets between this and twice of it.
    pub min_request_timeout: Duration,
    pub max_requests_inflight: u32,
    pub max_mutating_requests_inflight: u32,
    /// Priority and fairness share out the sum of the two; without it each counts for itself.
    pub fairness: bool,
    pub http2_max_streams: u32,
    /// How likely a request over HTTP/2 ends its connection, so that clients spread over servers.
    pub goaway_chance: f64,
    /// How long the server continues to serve, not ready any more, when it shuts down.
    pub shutdown_delay: Duration,
    /// A client that has not finished its handshake, or then its first request, in this time is disconnected.
    pub first_request_timeout: Duration,
    /// The most connections of clients that are not known yet.
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
