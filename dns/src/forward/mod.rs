//! Forwards queries to upstream resolvers: selection, retries and health checks. It caches no answers.

mod exchange;
mod resolv_conf;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::Random;
use tokio::time::Instant;

use crate::corefile::{self, Forward, Policy};
use crate::message::{Message, Name, Question, Rcode};
use crate::metrics::Metrics;
pub use exchange::ExchangeError;
pub use resolv_conf::name_servers;
use upstream::Upstream;

/// A query is given up after this, however many upstreams there are.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why a query was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No upstream is configured.
    #[error("there is no upstream")]
    NoUpstream,
    /// All upstreams failed their health checks.
    #[error("all upstreams are down")]
    Unhealthy,
    /// Too many queries are forwarded concurrently.
    #[error("more than {0} queries are forwarded at once")]
    Busy(usize),
    /// The last upstream that was tried failed.
    #[error("{0}: {1}")]
    Upstream(SocketAddr, #[source] ExchangeError),
}

/// The resolvers of a `forward` plugin.
pub struct Forwarder {
    config: Forward,
    upstreams: Vec<Arc<Upstream>>,
    turn: AtomicUsize,
    in_flight: AtomicUsize,
    random: Random,
    metrics: Arc<Metrics>,
}

/// Counts a query while it is forwarded.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Forwarder {
    /// Files among the upstreams are read now. Addresses of the server itself are left out, since they would be a loop.
    pub fn new(config: Forward, own: &[SocketAddr], metrics: Arc<Metrics>) -> Forwarder {
        let mut addresses = Vec::new();
        for to in &config.to {
            match to {
                corefile::Upstream::Address(address) => addresses.push(*address),
                corefile::Upstream::File(path) => addresses.extend(read_servers(path)),
            }
        }
        addresses.retain(|address| {
            let is_own = own.contains(address);
            if is_own {
                tracing::error!(%address, "upstream is this server itself, leaving it out");
            }
            !is_own
        });
        let upstreams = addresses.into_iter().map(|address| Upstream::new(address, &config, metrics.clone()));
        Forwarder {
            upstreams: upstreams.collect(),
            config,
            turn: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            random: Random::seeded(Random::fresh_seed()),
            metrics,
        }
    }

    /// Whether a name is forwarded here.
    pub fn covers(&self, name: &Name) -> bool {
        self.config.covers(name)
    }

    /// The addresses of the upstreams.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.upstreams.iter().map(|upstream| upstream.address).collect()
    }

    /// The response of the first upstream that answers, without its EDNS options.
    pub async fn forward(&self, question: &Question, query: &Message) -> Result<Message, ForwardError> {
        let _in_flight = self.acquire_slot()?;
        let deadline = Instant::now() + DEADLINE;
        let mut last = Err(ForwardError::NoUpstream);
        for upstream in self.candidates()? {
            if Instant::now() >= deadline {
                break;
            }
            match upstream.exchange(question, query, self.config.force_tcp, deadline).await {
                Ok(response) if self.config.failover.contains(&response.header.rcode) => last = Ok(response),
                Ok(response) => return Ok(response),
                Err(error) => {
                    upstream.mark_failed();
                    last = Err(ForwardError::Upstream(upstream.address, error));
                }
            }
        }
        last
    }

    fn acquire_slot(&self) -> Result<InFlight<'_>, ForwardError> {
        let limit = self.config.max_concurrent;
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let guard = InFlight(&self.in_flight);
        if limit > 0 && before >= limit {
            self.metrics.forward.concurrent_rejects.inc();
            return Err(ForwardError::Busy(limit));
        }
        Ok(guard)
    }

    /// The upstreams in the order of the policy, those that are up first, and each a second time: a lost packet is
    /// not the upstream's failure.
    fn candidates(&self) -> Result<Vec<Arc<Upstream>>, ForwardError> {
        let mut all = self.upstreams.clone();
        match self.config.policy {
            Policy::Sequential => {}
            Policy::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) % all.len().max(1);
                all.rotate_left(turn);
            }
            Policy::Random => shuffle(&mut all, &self.random),
        }
        let (up, down): (Vec<_>, Vec<_>) = all.into_iter().partition(|upstream| upstream.is_up());
        if up.is_empty() && !down.is_empty() {
            self.metrics.forward.healthcheck_broken.inc();
            if self.config.fails_fast {
                return Err(ForwardError::Unhealthy);
            }
        }
        let once: Vec<_> = up.into_iter().chain(down).collect();
        Ok(once.iter().chain(&once).cloned().collect())
    }

    /// Sends a query that comes back if an upstream forwards to this server.
    pub async fn probe(&self, question: &Question) {
        let query = Message::query(0, question.clone());
        for upstream in &self.upstreams {
            let deadline = Instant::now() + DEADLINE;
            let _ = upstream.exchange(question, &query, self.config.force_tcp, deadline).await;
        }
    }
}

fn read_servers(path: &std::path::Path) -> Vec<SocketAddr> {
    match std::fs::read_to_string(path) {
        Ok(text) => name_servers(&text),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "failed to read name servers");
            Vec::new()
        }
    }
}

/// Shuffles uniformly (Fisher and Yates).
pub fn shuffle<T>(items: &mut [T], random: &Random) {
    for last in (1..items.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(0);
        items.swap(last, other);
    }
}

/// The response to a query that could not be forwarded.
pub fn failure_code(error: &ForwardError) -> Rcode {
    match error {
        ForwardError::Busy(_) => Rcode::REFUSED,
        ForwardError::NoUpstream | ForwardError::Unhealthy | ForwardError::Upstream(..) => Rcode::SERVER_FAILURE,
    }
}
