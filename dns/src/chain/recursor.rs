//! Names that are not the cluster's: from the cache, or from the upstreams. Equal questions at the same time are one
//! query to an upstream.

use std::collections::HashMap;
use std::sync::Arc;

use stdx::sync::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Environment;
use super::block::Resolution;
use crate::cache::{Cache, CachedResponse, Key};
use crate::corefile::ServerBlock;
use crate::forward::{Forwarder, failure_code};
use crate::message::{Message, Question, Rcode};
use crate::metrics::{Metrics, Source};

/// Distinct questions that are forwarded at once; a client gets an error beyond it.
const MAX_FLIGHTS: usize = 10_000;

pub(super) struct Recursor {
    forwarders: Vec<Forwarder>,
    cache: Option<Arc<Cache>>,
    flights: Mutex<HashMap<Key, watch::Receiver<Option<Arc<Message>>>>>,
    logs_errors: bool,
    metrics: Arc<Metrics>,
    server: String,
}

impl Recursor {
    pub(super) fn new(
        config: &ServerBlock,
        environment: &Environment,
        server: &str,
        old: Option<&Recursor>,
    ) -> Recursor {
        let metrics = &environment.metrics;
        let own = &environment.own;
        let forward = |forward: &crate::corefile::Forward| Forwarder::new(forward.clone(), own, metrics.clone());
        let kept = old.and_then(|old| old.cache.as_ref()).filter(|old| Some(&old.config) == config.cache.as_ref());
        let new = || config.cache.clone().map(|cache| Arc::new(Cache::new(cache, metrics.clone(), server)));
        Recursor {
            forwarders: config.forwards.iter().map(forward).collect(),
            cache: kept.cloned().or_else(new),
            flights: Mutex::default(),
            logs_errors: config.errors,
            metrics: metrics.clone(),
            server: server.to_string(),
        }
    }

    pub(super) async fn probe(&self, question: &Question) {
        for forwarder in &self.forwarders {
            forwarder.probe(question).await;
        }
    }

    /// The response with the flags of the query.
    pub(super) async fn resolve(self: &Arc<Recursor>, question: &Question, query: &Message) -> Resolution {
        let key = Key::new(question, query);
        let cache = self.cache.as_ref().filter(|cache| cache.covers(&question.name));
        if let Some(hit) = cache.and_then(|cache| cache.get(&key, Instant::now())) {
            return self.resolve_cached(question, query, key, hit).await;
        }
        let message = self.fetch(question, query, key).await;
        Resolution { message: adapt_response(&message, query), source: Source::Forward }
    }

    async fn resolve_cached(
        self: &Arc<Recursor>,
        question: &Question,
        query: &Message,
        key: Key,
        hit: CachedResponse,
    ) -> Resolution {
        let verifies = self.cache.as_ref().and_then(|cache| cache.config.stale).is_some_and(|stale| stale.verifies);
        if hit.is_stale && verifies {
            let message = self.fetch(question, query, key).await;
            if !matches!(message.header.rcode, Rcode::SERVER_FAILURE | Rcode::REFUSED) {
                return Resolution { message: adapt_response(&message, query), source: Source::Forward };
            }
        } else if hit.is_stale || hit.is_due {
            if hit.is_due {
                let zones = self.cache.as_ref().map(|cache| cache.config.zones.iter().map(ToString::to_string));
                let zones = zones.into_iter().flatten().collect::<Vec<_>>().join(",");
                self.metrics.cache.prefetches.with_label_values(&[&*self.server, &zones, ""]).inc();
            }
            self.join(question, query, key);
        }
        Resolution { message: adapt_response(&hit.message, query), source: Source::Cache }
    }

    /// The response of the upstreams.
    async fn fetch(self: &Arc<Recursor>, question: &Question, query: &Message, key: Key) -> Arc<Message> {
        let failed = || Arc::new(query.reply(Rcode::SERVER_FAILURE));
        let Some(mut flight) = self.join(question, query, key) else { return failed() };
        let landed = flight.wait_for(Option::is_some).await;
        landed.ok().and_then(|message| message.clone()).unwrap_or_else(failed)
    }

    /// Joins the query for the same question, or sends it. It goes on without its clients, for the cache.
    fn join(
        self: &Arc<Recursor>,
        question: &Question,
        query: &Message,
        key: Key,
    ) -> Option<watch::Receiver<Option<Arc<Message>>>> {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&key) {
            return Some(flight.clone());
        }
        if flights.len() >= MAX_FLIGHTS {
            return None;
        }
        let (land, flight) = watch::channel(None);
        flights.insert(key.clone(), flight.clone());
        drop(flights);
        let (recursor, question, query) = (self.clone(), question.clone(), query.clone());
        tokio::spawn(async move {
            // Removed whatever happens: a flight that never lands would block its question.
            let _remove = FlightGuard(&recursor, key.clone());
            let response = recursor.forward(&question, &query).await;
            if let Some(cache) = recursor.cache.as_ref().filter(|cache| cache.covers(&question.name)) {
                cache.insert(key, &response, Instant::now());
            }
            land.send_replace(Some(Arc::new(response)));
        });
        Some(flight)
    }

    async fn forward(&self, question: &Question, query: &Message) -> Message {
        let Some(forwarder) = self.forwarders.iter().find(|forwarder| forwarder.covers(&question.name)) else {
            return query.reply(Rcode::REFUSED);
        };
        match forwarder.forward(question, query).await {
            Ok(response) => response,
            Err(error) => {
                if self.logs_errors {
                    tracing::warn!(name = %question.name, qtype = %question.qtype, %error, "failed to forward query");
                }
                query.reply(failure_code(&error))
            }
        }
    }
}

/// Removes a flight that has landed.
struct FlightGuard<'a>(&'a Recursor, Key);

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        self.0.flights.lock().remove(&self.1);
    }
}

/// A response of an upstream as one to the client's query.
fn adapt_response(response: &Message, query: &Message) -> Message {
    let mut message = response.clone();
    let from = response.header;
    message.header = query.reply(from.rcode).header;
    message.header.authoritative = from.authoritative;
    message.header.recursion_available = from.recursion_available;
    // Only for clients that request it (RFC 6840, 5.8).
    let wants_dnssec = query.edns.is_some_and(|edns| edns.dnssec_ok) || query.header.authentic_data;
    message.header.authentic_data = from.authentic_data && wants_dnssec;
    message.edns = None;
    message
}
