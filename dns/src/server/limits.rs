//! Limits by source address, so that a pod that floods the server does not take it from other pods.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stdx::sync::Mutex;
use stdx::token_bucket::TokenBucket;
use tokio::time::Instant;

use crate::metrics::{Metrics, Transport};

const SHARDS: usize = 16;
/// The sources of a shard; above it, idle sources are removed.
const MAX_SOURCES: usize = 1024;
/// A source that sent nothing for so long has a full bucket anyway.
const IDLE: Duration = Duration::from_secs(10);

/// The limits of each source address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Queries in a second, and at once.
    pub per_second: f64,
    /// Queries at once.
    pub burst: f64,
    /// Queries in a second, and at once, that may be refused: a source with more is a flood, and is not received for a
    /// moment. It has to be blocked before its packets fill the receive queue.
    pub refused_per_second: f64,
    /// Refused queries at once.
    pub refused_burst: f64,
    /// Queries that wait for an upstream.
    pub in_flight: u32,
    /// Connections of a source, and of all.
    pub connections_per_source: u32,
    /// Connections of all sources.
    pub connections: u32,
    /// Whether loopback addresses, which no pod has, are not limited in their rate.
    pub exempts_loopback: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            per_second: 10_000.0,
            burst: 2000.0,
            refused_per_second: 5000.0,
            refused_burst: 300.0,
            in_flight: 500,
            connections_per_source: 100,
            connections: 1000,
            exempts_loopback: true,
        }
    }
}

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    /// Denied, and its source should be blocked.
    Flood,
}

struct Source {
    bucket: TokenBucket<Instant>,
    refused: TokenBucket<Instant>,
    in_flight: u32,
    connections: u32,
}

type Shard = HashMap<IpAddr, Source>;

/// The sources that sent something recently.
pub(super) struct Sources {
    limits: Limits,
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    connections: Mutex<u32>,
    metrics: Arc<Metrics>,
}

impl Sources {
    pub(super) fn new(limits: Limits, metrics: Arc<Metrics>) -> Sources {
        let shards = std::array::from_fn(|_| Mutex::default());
        Sources { limits, shards, hasher: RandomState::new(), connections: Mutex::new(0), metrics }
    }

    /// Whether a query is answered.
    pub(super) fn check_packet(&self, address: IpAddr, transport: Transport, now: Instant) -> Verdict {
        if self.limits.exempts_loopback && address.to_canonical().is_loopback() {
            return Verdict::Allowed;
        }
        let judge = |source: &mut Source| match source.bucket.try_take(now) {
            true => Verdict::Allowed,
            false if source.refused.try_take(now) => Verdict::Denied,
            false => Verdict::Flood,
        };
        let verdict = self.with(address, now, judge).unwrap_or(Verdict::Denied);
        if verdict != Verdict::Allowed {
            self.metrics.rate_limited.with_label_values(&[transport.name()]).inc();
        }
        verdict
    }

    /// Empties the allowance of a source that is blocked until then: it is blocked again before its packets fill the
    /// receive queue.
    pub(super) fn drain(&self, address: IpAddr, until: Instant) {
        self.with(address, until, |source| while source.bucket.try_take(until) {});
    }

    pub(super) fn allows(&self, address: IpAddr, transport: Transport, now: Instant) -> bool {
        self.check_packet(address, transport, now) == Verdict::Allowed
    }

    /// Counts a query that waits; false if there are too many.
    pub(super) fn acquire_query(&self, address: IpAddr, now: Instant) -> bool {
        let limit = self.limits.in_flight;
        let hold = |source: &mut Source| {
            let is_allowed = source.in_flight < limit;
            source.in_flight += u32::from(is_allowed);
            is_allowed
        };
        self.with(address, now, hold).unwrap_or(false)
    }

    pub(super) fn release_query(&self, address: IpAddr) {
        if let Some(source) = self.shard(address).lock().get_mut(&address) {
            source.in_flight = source.in_flight.saturating_sub(1);
        }
    }

    /// Counts a connection; false if there are too many.
    pub(super) fn acquire_connection(&self, address: IpAddr, now: Instant) -> bool {
        let mut all = self.connections.lock();
        let hold = |source: &mut Source| {
            let is_allowed = source.connections < self.limits.connections_per_source;
            source.connections += u32::from(is_allowed);
            is_allowed
        };
        let is_allowed = *all < self.limits.connections && self.with(address, now, hold).unwrap_or(false);
        *all += u32::from(is_allowed);
        is_allowed
    }

    pub(super) fn release_connection(&self, address: IpAddr) {
        let mut all = self.connections.lock();
        *all = all.saturating_sub(1);
        if let Some(source) = self.shard(address).lock().get_mut(&address) {
            source.connections = source.connections.saturating_sub(1);
        }
    }

    fn shard(&self, address: IpAddr) -> &Mutex<Shard> {
        &self.shards[(self.hasher.hash_one(address) % SHARDS as u64) as usize]
    }

    /// None if there are too many active sources.
    fn with<T>(&self, address: IpAddr, now: Instant, act: impl FnOnce(&mut Source) -> T) -> Option<T> {
        let mut shard = self.shard(address).lock();
        if shard.len() >= MAX_SOURCES && !shard.contains_key(&address) {
            shard.retain(|_, source| !source.is_idle(now));
            if shard.len() >= MAX_SOURCES {
                return None;
            }
        }
        let new = || Source {
            bucket: TokenBucket::new(self.limits.per_second, self.limits.burst, now),
            refused: TokenBucket::new(self.limits.refused_per_second, self.limits.refused_burst, now),
            in_flight: 0,
            connections: 0,
        };
        Some(act(shard.entry(address).or_insert_with(new)))
    }
}

impl Source {
    fn is_idle(&self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.bucket.last_used());
        self.in_flight == 0 && self.connections == 0 && since >= IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(limits: Limits) -> Sources {
        Sources::new(limits, Arc::default())
    }

    fn address(last: u8) -> IpAddr {
        [10, 244, 0, last].into()
    }

    #[test]
    fn limits_only_the_source_of_a_flood() {
        let sources = sources(Limits { per_second: 10.0, burst: 5.0, ..Limits::default() });
        let now = Instant::now();
        let allowed = |address: IpAddr, at: Instant| sources.allows(address, Transport::Udp, at);
        let count = (0..100).filter(|_| allowed(address(1), now)).count();
        assert_eq!(count, 5);
        assert!(allowed(address(2), now), "another source");
        assert!(allowed(address(1), now + Duration::from_millis(100)), "one more token");
        assert!((0..100).all(|_| allowed([127, 0, 0, 1].into(), now)), "the node itself");
        assert!(sources.metrics.render().contains("tiphys_dns_rate_limited_total{proto=\"udp\"} 95"));
    }

    #[test]
    fn distinguishes_a_flood_from_many_queries() {
        let limits = Limits { refused_per_second: 100.0, refused_burst: 30.0, per_second: 10.0, ..Limits::default() };
        let sources = sources(Limits { burst: 20.0, ..limits });
        let now = Instant::now();
        let verdicts: Vec<Verdict> = (0..60).map(|_| sources.check_packet(address(1), Transport::Udp, now)).collect();
        assert!(verdicts[..20].iter().all(|verdict| *verdict == Verdict::Allowed));
        assert!(verdicts[20..50].iter().all(|verdict| *verdict == Verdict::Denied));
        assert!(verdicts[50..].iter().all(|verdict| *verdict == Verdict::Flood));
    }

    #[test]
    fn a_blocked_source_starts_without_allowance() {
        let limits = Limits { refused_per_second: 100.0, refused_burst: 30.0, per_second: 10.0, ..Limits::default() };
        let sources = sources(Limits { burst: 20.0, ..limits });
        let now = Instant::now();
        let allowed = |at: Instant| {
            let verdicts = (0..60).map(|_| sources.check_packet(address(1), Transport::Udp, at));
            verdicts.filter(|verdict| *verdict == Verdict::Allowed).count()
        };
        assert_eq!(allowed(now), 20);
        let end = now + Duration::from_secs(4);
        sources.drain(address(1), end);
        assert_eq!(allowed(end), 0);
        assert_eq!(allowed(end + Duration::from_millis(500)), 5);
    }

    #[test]
    fn waiting_queries_and_connections_are_limited() {
        let limits = Limits { in_flight: 2, connections_per_source: 2, connections: 3, ..Limits::default() };
        let sources = sources(limits);
        let now = Instant::now();
        let queries = |address: IpAddr| (0..5).filter(|_| sources.acquire_query(address, now)).count();
        assert_eq!((queries(address(1)), queries(address(2))), (2, 2));
        sources.release_query(address(1));
        assert_eq!(queries(address(1)), 1);
        let connections = |address: IpAddr| (0..5).filter(|_| sources.acquire_connection(address, now)).count();
        assert_eq!((connections(address(1)), connections(address(2))), (2, 1));
        sources.release_connection(address(1));
        assert_eq!(connections(address(2)), 1);
    }

    #[test]
    fn removes_idle_sources() {
        let sources = sources(Limits::default());
        let now = Instant::now();
        let from = |number: u32, at: Instant| {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
            sources.allows(address, Transport::Udp, at)
        };
        let all = u32::try_from(SHARDS * MAX_SOURCES).expect("a number");
        assert!((0..2 * all).filter(|number| from(*number, now)).count() <= SHARDS * MAX_SOURCES);
        assert!((0..1000).all(|number| from(3 * all + number, now + IDLE)));
    }
}
