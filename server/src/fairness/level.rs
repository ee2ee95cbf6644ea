//! A priority level at work: the queues behind a lock, and the seats that requests hold.

use std::sync::Arc;
use std::time::Duration;

use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::crowd::Crowd;
use super::demand::{Claim, smooth};
use super::dropped::Dropped;
use super::dump::{About, Queue};
use super::queues::{Load, Queues, Reason, Shape, Ticket, Verdict};
use crate::request::turns::Turns;

/// A level's seats as its object and its shares give them.
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
    crowd: Crowd,
    turns: Turns,
}

struct State {
    queues: Queues<Waiter>,
    bounds: Bounds,
    smoothed: f64,
    dropped: Dropped,
    tally: Tally,
}

/// A request in a queue.
struct Waiter {
    told: oneshot::Sender<()>,
    about: About,
}

/// Requests that got nothing, since the level is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// At once, for want of room.
    pub rejected: u64,
    /// After their time in a queue.
    pub timed_out: u64,
    /// Cancelled by the client while they waited.
    pub cancelled: u64,
}

pub(crate) enum Entry {
    Run(Seat),
    Wait(Seat, oneshot::Receiver<()>),
    Reject(Reason),
}

/// A request's seats, or its place in a queue; given back when it is dropped.
pub(crate) struct Seat {
    level: Arc<Level>,
    place: Ticket,
    began: Instant,
    timed_out: bool,
}

impl Seat {
    /// The wait is over: only from here on the seats are used.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// The wait was too long, and ends without a seat.
    pub(crate) fn give_up(mut self) {
        self.timed_out = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        let mut state = self.level.hold();
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

/// A request that was cancelled meanwhile gives its seats back by itself.
fn wake(woken: Vec<Waiter>) {
    for waiter in woken {
        let _ = waiter.told.send(());
    }
}

impl Level {
    pub(crate) fn new(shape: Shape, bounds: Bounds) -> Level {
        let queues = Queues::new(shape, bounds.nominal.max(1), Duration::ZERO);
        let state =
            Mutex::new(State { queues, bounds, smoothed: 0.0, dropped: Dropped::default(), tally: Tally::default() });
        Level { started: Instant::now(), state, crowd: Crowd::default(), turns: Turns::default() }
    }

    /// Whether a request of this flow yields to others before it is served.
    pub(crate) fn steps_aside(&self, flow: u64) -> bool {
        self.crowd.count(flow)
    }

    /// The turns of requests that yield.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Takes what the objects say now. Where the level's own bounds are new, lending starts over.
    pub(crate) fn configure(&self, shape: Shape, bounds: Bounds) {
        let now = self.since(Instant::now());
        let mut state = self.hold();
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
        about: impl FnOnce() -> About,
    ) -> Entry {
        let mut told = None;
        let verdict = self.hold().queues.arrive(self.since(now), hash, seats, || {
            let (sender, receiver) = oneshot::channel();
            told = Some(receiver);
            Waiter { told: sender, about: about() }
        });
        let seat = |place| Seat { level: self.clone(), place, began: now, timed_out: false };
        match (verdict, told) {
            (Verdict::Run(place), _) => Entry::Run(seat(place)),
            (Verdict::Wait(place), Some(receiver)) => Entry::Wait(seat(place), receiver),
            (Verdict::Wait(_), None) => Entry::Reject(Reason::QueueFull),
            (Verdict::Reject(reason), _) => Entry::Reject(reason),
        }
    }

    /// A request of this second is refused, at once or after its wait; how long it is to stay away.
    pub(crate) fn refuse(&self, second: i64, at_once: bool) -> u32 {
        let mut state = self.hold();
        state.tally.rejected += u64::from(at_once);
        state.dropped.count(second)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.hold().tally
    }

    /// Shows the queues at one moment.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&[Queue<'_>]) -> R) -> R {
        let state = self.hold();
        let queues = state.queues.look().map(|seen| Queue {
            waiting: seen.waiting.into_iter().map(|(waiter, seats)| (&waiter.about, seats)).collect(),
            running: seen.running,
            running_seats: seen.running_seats,
            next_start: seen.next_start,
            work: seen.work,
        });
        look(&queues.collect::<Vec<_>>())
    }

    pub(crate) fn load(&self) -> Load {
        self.hold().queues.load()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.hold().bounds
    }

    /// The demand of the level after one more period.
    pub(crate) fn claim(&self, now: Instant) -> Claim {
        let mut state = self.hold();
        let summary = state.queues.take_demand(self.since(now));
        state.smoothed = smooth(state.smoothed, summary);
        let Bounds { nominal, least, most } = state.bounds;
        let least = f64::from(least).max(f64::from(nominal).min(summary.high)).max(1.0);
        Claim { least, most: f64::from(most).max(least), wanted: state.smoothed.max(least) }
    }

    pub(crate) fn set_limit(&self, now: Instant, limit: u32) {
        let woken = self.hold().queues.set_limit(self.since(now), limit);
        wake(woken);
    }
}
