//! A priority level at work: the queues behind a lock, and the seats that requests hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::crowd::Crowd;
use super::demand::{Claim, smooth};
use super::queues::{Load, Place, Queues, Reason, Shape, Verdict};

/// A level's seats as its object and its shares give them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub nominal: u32,
    pub least: u32,
    pub most: u32,
}

/// What lives as long as requests do, however often the objects change.
pub struct Level {
    started: Instant,
    state: Mutex<State>,
    crowd: Crowd,
}

struct State {
    queues: Queues<oneshot::Sender<()>>,
    bounds: Bounds,
    smoothed: f64,
}

pub enum Entry {
    Run(Seat),
    Wait(Seat, oneshot::Receiver<()>),
    Reject(Reason),
}

/// A request's seats, or its place in a queue; given back when it is dropped.
pub struct Seat {
    level: Arc<Level>,
    place: Place,
    began: Instant,
}

impl Seat {
    /// The wait is over: only from here on the seats are used.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        let woken = self.level.hold().queues.leave(self.level.since(now), self.place, took);
        wake(woken);
    }
}

/// One that has gone away meanwhile gives its seats back by itself.
fn wake(woken: Vec<oneshot::Sender<()>>) {
    for sender in woken {
        let _ = sender.send(());
    }
}

impl Level {
    pub fn new(shape: Shape, bounds: Bounds) -> Level {
        let queues = Queues::new(shape, bounds.nominal.max(1), Duration::ZERO);
        let state = Mutex::new(State { queues, bounds, smoothed: 0.0 });
        Level { started: Instant::now(), state, crowd: Crowd::default() }
    }

    /// Whether a request of this flow lets others pass before it is looked at.
    pub fn steps_aside(&self, flow: u64) -> bool {
        self.crowd.count(flow)
    }

    fn hold(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Takes what the objects say now. Where the level's own bounds are new, lending starts over.
    pub fn configure(&self, shape: Shape, bounds: Bounds) {
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

    pub fn enter(self: &Arc<Level>, now: Instant, hash: u64, seats: u32) -> Entry {
        let mut told = None;
        let verdict = self.hold().queues.arrive(self.since(now), hash, seats, || {
            let (sender, receiver) = oneshot::channel();
            told = Some(receiver);
            sender
        });
        let seat = |place| Seat { level: self.clone(), place, began: now };
        match (verdict, told) {
            (Verdict::Run(place), _) => Entry::Run(seat(place)),
            (Verdict::Wait(place), Some(receiver)) => Entry::Wait(seat(place), receiver),
            (Verdict::Wait(_), None) => Entry::Reject(Reason::QueueFull),
            (Verdict::Reject(reason), _) => Entry::Reject(reason),
        }
    }

    pub fn load(&self) -> Load {
        self.hold().queues.load()
    }

    pub fn bounds(&self) -> Bounds {
        self.hold().bounds
    }

    /// What the level asks for after one more period.
    pub fn claim(&self, now: Instant) -> Claim {
        let mut state = self.hold();
        let summary = state.queues.take_demand(self.since(now));
        state.smoothed = smooth(state.smoothed, summary);
        let Bounds { nominal, least, most } = state.bounds;
        let least = f64::from(least).max(f64::from(nominal).min(summary.high)).max(1.0);
        Claim { least, most: f64::from(most).max(least), wanted: state.smoothed.max(least) }
    }

    pub fn set_limit(&self, now: Instant, limit: u32) {
        let woken = self.hold().queues.set_limit(self.since(now), limit);
        wake(woken);
    }
}
