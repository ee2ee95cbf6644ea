//! A running priority level: the queues behind a lock, and the seats that requests hold.

use std::sync::Arc;
use std::time::Duration;

use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::demand::{LevelDemand, smooth};
use super::dropped_requests::DroppedRequests;
use super::dump::{Queue, WaitingRequest};
use super::flow_counter::FlowCounter;
use super::queues::{Load, QueueConfig, Queues, Reason, Ticket, Verdict};
use crate::request::cpu_permits::CpuPermits;

/// A level's seats, from its object and its shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub nominal: u32,
    pub least: u32,
    pub most: u32,
}

/// The state that outlives changes of the objects.
pub(crate) struct Level {
    started: Instant,
    state: Mutex<State>,
    crowd: FlowCounter,
    turns: CpuPermits,
}

struct State {
    queues: Queues<Waiter>,
    bounds: Bounds,
    smoothed: f64,
    dropped: DroppedRequests,
    tally: RejectionCounts,
}

/// A request in a queue.
struct Waiter {
    told: oneshot::Sender<()>,
    about: WaitingRequest,
}

/// Requests that were not executed since the level was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RejectionCounts {
    /// Rejected at once, because the queues were full.
    pub rejected: u64,
    /// After their time in a queue.
    pub timed_out: u64,
    /// Cancelled by the client while they waited.
    pub cancelled: u64,
}

pub(crate) enum Dispatch {
    Run(Seat),
    Wait(Seat, oneshot::Receiver<()>),
    Reject(Reason),
}

/// A request's seats, or its position in a queue; released when it is dropped.
pub(crate) struct Seat {
    level: Arc<Level>,
    place: Ticket,
    began: Instant,
    timed_out: bool,
}

impl Seat {
    /// Ends the wait: only from now on the seats are in use.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Ends a wait without a seat, after the timeout.
    pub(crate) fn time_out(mut self) {
        self.timed_out = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        let mut state = self.level.lock_state();
        let (woken, gave_up) = state.queues.leave(self.level.since(now), self.place, took);
        if gave_up && self.timed_out {
            state.tally.timed_out += 1;
        } else if gave_up {
            state.tally.cancelled += 1;
        }
        drop(state);
        wake(woken);
    }
}

/// A request that was cancelled meanwhile releases its own seats.
fn wake(woken: Vec<Waiter>) {
    for waiter in woken {
        let _ = waiter.told.send(());
    }
}

impl Level {
    pub(crate) fn new(shape: QueueConfig, bounds: Bounds) -> Level {
        let queues = Queues::new(shape, bounds.nominal.max(1), Duration::ZERO);
        let state = Mutex::new(State {
            queues,
            bounds,
            smoothed: 0.0,
            dropped: DroppedRequests::default(),
            tally: RejectionCounts::default(),
        });
        Level { started: Instant::now(), state, crowd: FlowCounter::default(), turns: CpuPermits::default() }
    }

    /// Whether a request of this flow yields to others before it is served.
    pub(crate) fn should_yield(&self, flow: u64) -> bool {
        self.crowd.count(flow)
    }

    /// The turns of requests that yield.
    pub(crate) fn turns(&self) -> &CpuPermits {
        &self.turns
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Applies the current objects. If the level's own bounds have changed, lending starts over.
    pub(crate) fn configure(&self, shape: QueueConfig, bounds: Bounds) {
        let now = self.since(Instant::now());
        let mut state = self.lock_state();
        state.queues.reshape(shape);
        if state.bounds != bounds {
            state.bounds = bounds;
            let woken = state.queues.set_limit(now, bounds.nominal.max(1));
            drop(state);
            wake(woken);
        }
    }

    /// `about` is called only if the request has to wait.
    pub(crate) fn enter(
        self: &Arc<Level>,
        now: Instant,
        hash: u64,
        seats: u32,
        about: impl FnOnce() -> WaitingRequest,
    ) -> Dispatch {
        let mut told = None;
        let verdict = self.lock_state().queues.arrive(self.since(now), hash, seats, || {
            let (sender, receiver) = oneshot::channel();
            told = Some(receiver);
            Waiter { told: sender, about: about() }
        });
        let seat = |place| Seat { level: self.clone(), place, began: now, timed_out: false };
        match (verdict, told) {
            (Verdict::Run(place), _) => Dispatch::Run(seat(place)),
            (Verdict::Wait(place), Some(receiver)) => Dispatch::Wait(seat(place), receiver),
            (Verdict::Wait(_), None) => Dispatch::Reject(Reason::QueueFull),
            (Verdict::Reject(reason), _) => Dispatch::Reject(reason),
        }
    }

    /// Counts a rejection in this second, at once or after a wait; returns the delay for the client.
    pub(crate) fn refuse(&self, second: i64, at_once: bool) -> u32 {
        let mut state = self.lock_state();
        state.tally.rejected += u64::from(at_once);
        state.dropped.count(second)
    }

    pub(crate) fn tally(&self) -> RejectionCounts {
        self.lock_state().tally
    }

    /// Shows the queues at one moment.
    pub(crate) fn with_queues<R>(&self, visit: impl FnOnce(&[Queue<'_>]) -> R) -> R {
        let state = self.lock_state();
        let queues = state.queues.snapshots().map(|seen| Queue {
            waiting: seen.waiting.into_iter().map(|(waiter, seats)| (&waiter.about, seats)).collect(),
            running: seen.running,
            running_seats: seen.running_seats,
            next_start: seen.next_start,
            work: seen.work,
        });
        visit(&queues.collect::<Vec<_>>())
    }

    pub(crate) fn load(&self) -> Load {
        self.lock_state().queues.load()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.lock_state().bounds
    }

    /// The demand of the level after one more period.
    pub(crate) fn claim(&self, now: Instant) -> LevelDemand {
        let mut state = self.lock_state();
        let summary = state.queues.take_demand(self.since(now));
        state.smoothed = smooth(state.smoothed, summary);
        let Bounds { nominal, least, most } = state.bounds;
        let least = f64::from(least).max(f64::from(nominal).min(summary.high)).max(1.0);
        LevelDemand { least, most: f64::from(most).max(least), wanted: state.smoothed.max(least) }
    }

    pub(crate) fn set_limit(&self, now: Instant, limit: u32) {
        let woken = self.lock_state().queues.set_limit(self.since(now), limit);
        wake(woken);
    }
}
