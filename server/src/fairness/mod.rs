//! Priority and fairness: selects the requests that get a seat when the server is overloaded. Schemas assign requests
//! to flows and levels; a level shares its seats fairly between its flows, and lends unused seats. A request that finds
//! a free seat costs a lock and no future.

mod changes;
mod demand;
mod dropped_requests;
pub(crate) mod dump;
mod flow_counter;
mod hand;
mod inflight;
pub(crate) mod level;
pub(crate) mod matching;
mod metrics;
pub(crate) mod objects;
pub(crate) mod plan;
mod queues;
pub(crate) mod width;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::request::limits::Limits;
use crate::storage::Storage;
pub(crate) use changes::Changes;
use inflight::{Inflight, InflightGuard};
use metrics::FlowMetrics;
use plan::{Plan, Schema};

pub(crate) use level::Seat;

/// The interval at which seats are lent, while requests arrive.
pub(crate) const ADJUSTMENT: Duration = Duration::from_secs(10);
/// Priority and fairness: the plan of the configured levels, and their seats.
pub struct Fairness {
    pub(crate) plan: ArcSwap<Plan>,
    pub(crate) metrics: FlowMetrics,
    pub(crate) inflight: Inflight,
    /// Clients cannot choose names that share a queue.
    salt: u64,
    started: Instant,
    /// Milliseconds since `started`.
    adjusted: AtomicU64,
}

/// Limits the number of calls in progress; dropping it frees the seat.
#[expect(dead_code, reason = "held until it is dropped")]
pub(crate) enum ConcurrencyGuard {
    Seat(Seat),
    Inflight(InflightGuard),
}

/// The objects that classified a call; the headers of its response name them.
#[derive(Clone)]
pub(crate) struct Flow {
    pub schema: Option<HeaderValue>,
    pub level: Option<HeaderValue>,
}

impl Fairness {
    /// Priority and fairness with its metrics.
    pub fn new(metrics: &crate::metrics::Metrics) -> Fairness {
        Fairness {
            plan: ArcSwap::from_pointee(Plan::empty()),
            metrics: FlowMetrics::new(metrics.registry()),
            inflight: Inflight::default(),
            salt: crate::common::ids::below(u64::MAX),
            started: Instant::now(),
            adjusted: AtomicU64::new(0),
        }
    }

    /// Compiles the current objects.
    pub fn reload(&self, storage: &Storage, limits: &Limits) {
        let total = limits.max_requests_inflight.saturating_add(limits.max_mutating_requests_inflight);
        let (schemas, levels) =
            (storage.objects("flowschemas", ""), storage.objects("prioritylevelconfigurations", ""));
        let plan = self.plan.load().compile(&schemas, &levels, total, &self.metrics);
        self.plan.store(Arc::new(plan));
    }

    /// Updates the gauges before they are read.
    pub fn show(&self) {
        self.metrics.show(&self.plan.load());
    }

    /// Lends seats again once the period is over. Only arriving or waiting requests call this: an idle server does
    /// nothing.
    pub(crate) fn adjust(&self, plan: &Plan, now: Instant) {
        let millis = now.saturating_duration_since(self.started).as_millis() as u64;
        let last = self.adjusted.load(Ordering::Relaxed);
        let due = millis >= last + ADJUSTMENT.as_millis() as u64;
        if due && self.adjusted.compare_exchange(last, millis, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            rebalance_seats(plan, now);
        }
    }

    /// When seats are lent the next time.
    pub(crate) fn next_adjustment(&self) -> Instant {
        self.started + Duration::from_millis(self.adjusted.load(Ordering::Relaxed)) + ADJUSTMENT
    }

    pub(crate) fn flow_hash(&self, schema: &Schema, flow: &str) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one((self.salt, &schema.name, flow))
    }
}

pub(crate) fn rebalance_seats(plan: &Plan, now: Instant) {
    let levels: Vec<_> = plan.levels.iter().filter_map(|priority| priority.level.as_ref()).collect();
    let claims: Vec<_> = levels.iter().map(|level| level.claim(now)).collect();
    for (level, seats) in levels.iter().zip(demand::allocate(plan.total, &claims)) {
        level.set_limit(now, seats.max(1));
    }
}

/// Compiles at each change of a schema or a level, until the server drains.
pub(crate) async fn follow(
    fairness: Arc<Fairness>,
    storage: Arc<Storage>,
    limits: Limits,
    closing: watch::Receiver<bool>,
) {
    let Some(mut changes) = Changes::of(&storage.caches, closing) else { return };
    fairness.reload(&storage, &limits);
    while changes.next().await {
        fairness.reload(&storage, &limits);
    }
}
