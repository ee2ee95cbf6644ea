//! Fair queueing of one priority level: pure, with the clock and the flow's hash as arguments. Each queue has a virtual
//! start for its next request; the request that would finish first runs next. Busy queues thus get equal shares of the
//! seats, whatever their demand.

use std::collections::VecDeque;
use std::time::Duration;

use super::demand::Demand;
use super::hand;

/// The assumed duration of a request in seconds, until it has finished.
const ESTIMATE: f64 = 0.003;

/// How requests wait; without queues they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct QueueConfig {
    pub queues: usize,
    pub hand_size: usize,
    pub queue_length_limit: usize,
}

/// The queue in which a request runs or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    queue: usize,
    id: u64,
    pub seats: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Run(Ticket),
    Wait(Ticket),
    Reject(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    ConcurrencyLimit,
    QueueFull,
}

impl Reason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Reason::ConcurrencyLimit => "concurrency-limit",
            Reason::QueueFull => "queue-full",
        }
    }
}

/// `T` notifies a waiting request.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    shape: QueueConfig,
    /// Seats that may be in use; moved by borrowing.
    limit: u32,
    running_seats: u32,
    waiting_seats: u32,
    running: u32,
    waiting: u32,
    /// Queues with a request that runs or waits.
    active: u32,
    virtual_now: f64,
    now: Duration,
    next_id: u64,
    /// The start of the search for the next queue: queues with equal finish times alternate.
    robin: usize,
    queues: Vec<Queue<T>>,
    demand: Demand,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<QueuedRequest<T>>,
    waiting_seats: u32,
    running: u32,
    running_seats: u32,
    /// The virtual start of its next request.
    next_start: f64,
}

#[derive(Debug)]
struct QueuedRequest<T> {
    id: u64,
    seats: u32,
    token: T,
}

impl<T> Queue<T> {
    fn new() -> Queue<T> {
        Queue { waiting: VecDeque::new(), waiting_seats: 0, running: 0, running_seats: 0, next_start: 0.0 }
    }

    fn is_active(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }
}

/// How full a level is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub limit: u32,
    pub running: u32,
    pub running_seats: u32,
    pub waiting: u32,
    pub waiting_seats: u32,
}

/// The state of a queue, for debugging endpoints.
pub(super) struct QueueSnapshot<'a, T> {
    pub waiting: Vec<(&'a T, u32)>,
    pub running: u32,
    pub running_seats: u32,
    pub next_start: f64,
    /// The estimated seat-seconds of the waiting requests.
    pub work: f64,
}

impl<T> Queues<T> {
    pub(super) fn new(shape: QueueConfig, limit: u32, now: Duration) -> Queues<T> {
        let mut queues = Queues {
            shape: QueueConfig::default(),
            limit,
            running_seats: 0,
            waiting_seats: 0,
            running: 0,
            waiting: 0,
            active: 0,
            virtual_now: 0.0,
            now,
            next_id: 0,
            robin: 0,
            queues: Vec::new(),
            demand: Demand::new(now),
        };
        queues.reshape(shape);
        queues
    }

    /// Changes the configuration. Requests of removed queues move to the remaining ones.
    pub(crate) fn reshape(&mut self, shape: QueueConfig) {
        self.shape = shape;
        let count = shape.queues.max(1);
        self.queues.resize_with(self.queues.len().max(count), Queue::new);
        for at in (count..self.queues.len()).rev() {
            let gone = self.queues.swap_remove(at);
            let heir = &mut self.queues[at % count];
            heir.waiting.extend(gone.waiting);
            heir.waiting_seats += gone.waiting_seats;
            heir.running += gone.running;
            heir.running_seats += gone.running_seats;
        }
        self.active = self.queues.iter().filter(|queue| queue.is_active()).count() as u32;
    }

    pub(super) fn load(&self) -> Load {
        Load {
            limit: self.limit,
            running: self.running,
            running_seats: self.running_seats,
            waiting: self.waiting,
            waiting_seats: self.waiting_seats,
        }
    }

    /// A snapshot of each queue: its waiting requests with their seats, its running requests, and its next start.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = QueueSnapshot<'_, T>> {
        self.queues.iter().take(self.shape.queues).map(|queue| QueueSnapshot {
            waiting: queue.waiting.iter().map(|waiting| (&waiting.token, waiting.seats)).collect(),
            running: queue.running,
            running_seats: queue.running_seats,
            next_start: queue.next_start,
            work: ESTIMATE * f64::from(queue.waiting_seats),
        })
    }

    /// The demand since the last call.
    pub(crate) fn take_demand(&mut self, now: Duration) -> super::demand::Summary {
        self.advance(now);
        self.demand.take(now)
    }

    /// Adds a request. `token` is called only for a request that waits.
    pub(super) fn arrive(&mut self, now: Duration, hash: u64, seats: u32, token: impl FnOnce() -> T) -> Verdict {
        self.advance(now);
        let queue = self.choose(hash);
        let place = Ticket { queue, id: self.next_id, seats };
        self.next_id += 1;
        // No request waits while seats are free, unless the first one in line needs more of them.
        if self.waiting == 0 && self.fits(seats) {
            self.activate(queue);
            self.start(queue, seats);
            self.note_demand();
            return Verdict::Run(place);
        }
        if self.shape.queues == 0 {
            return Verdict::Reject(Reason::ConcurrencyLimit);
        }
        if self.queues[queue].waiting.len() >= self.shape.queue_length_limit {
            return Verdict::Reject(Reason::QueueFull);
        }
        self.activate(queue);
        self.queues[queue].waiting.push_back(QueuedRequest { id: place.id, seats, token: token() });
        self.queues[queue].waiting_seats += seats;
        self.waiting += 1;
        self.waiting_seats += seats;
        self.note_demand();
        Verdict::Wait(place)
    }

    /// Removes a request that has finished after `took`, or that stops waiting. Returns the requests that now run, and
    /// whether it was still waiting.
    pub(super) fn leave(&mut self, now: Duration, place: Ticket, took: Duration) -> (Vec<T>, bool) {
        self.advance(now);
        let at = place.queue % self.queues.len();
        let gave_up = self.time_out(at, place.id);
        if !gave_up {
            self.finish(at, place.seats, took);
        }
        if !self.queues[at].is_active() {
            self.active -= 1;
        }
        self.note_demand();
        (self.dispatch(), gave_up)
    }

    /// Changes the number of seats; returns the requests that now run.
    pub(crate) fn set_limit(&mut self, now: Duration, limit: u32) -> Vec<T> {
        self.advance(now);
        self.limit = limit;
        self.dispatch()
    }

    /// Virtual time advances as fast as each active queue is served.
    fn advance(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.now).as_secs_f64();
        self.now = self.now.max(now);
        if self.active > 0 {
            let served = (self.running_seats + self.waiting_seats).min(self.limit.max(1));
            self.virtual_now += elapsed * f64::from(served) / f64::from(self.active);
        }
    }

    fn note_demand(&mut self) {
        self.demand.set(self.now, self.running_seats + self.waiting_seats);
    }

    /// The least loaded queue of the flow's hand.
    fn choose(&self, hash: u64) -> usize {
        if self.shape.queues <= 1 {
            return 0;
        }
        let mut best = (u32::MAX, 0);
        hand::deal(hash, self.shape.queues, self.shape.hand_size.max(1), |card| {
            let queue = &self.queues[card];
            let load = queue.waiting_seats + queue.running_seats;
            if load < best.0 {
                best = (load, card);
            }
        });
        best.1
    }

    /// A queue that was idle has neither credit nor debt.
    fn activate(&mut self, at: usize) {
        if !self.queues[at].is_active() {
            self.queues[at].next_start = self.virtual_now;
            self.active += 1;
        }
    }

    /// A request that is wider than the level runs alone.
    fn fits(&self, seats: u32) -> bool {
        self.running_seats + seats <= self.limit || (self.running_seats == 0 && self.limit > 0)
    }

    fn start(&mut self, at: usize, seats: u32) {
        let queue = &mut self.queues[at];
        queue.running += 1;
        queue.running_seats += seats;
        queue.next_start += ESTIMATE * f64::from(seats);
        self.running += 1;
        self.running_seats += seats;
    }

    /// Replaces the estimate with the measured duration.
    fn finish(&mut self, at: usize, seats: u32, took: Duration) {
        let queue = &mut self.queues[at];
        queue.running -= 1;
        queue.running_seats -= seats;
        queue.next_start += (took.as_secs_f64() - ESTIMATE) * f64::from(seats);
        self.running -= 1;
        self.running_seats -= seats;
    }

    fn time_out(&mut self, at: usize, id: u64) -> bool {
        let queue = &mut self.queues[at];
        let Some(found) = queue.waiting.iter().position(|waiting| waiting.id == id) else { return false };
        let seats = queue.waiting.remove(found).map_or(0, |waiting| waiting.seats);
        queue.waiting_seats -= seats;
        self.waiting -= 1;
        self.waiting_seats -= seats;
        true
    }

    fn dispatch(&mut self) -> Vec<T> {
        let mut run = Vec::new();
        while self.waiting > 0 {
            let Some(at) = self.first_to_finish() else { break };
            let Some(seats) = self.queues[at].waiting.front().map(|waiting| waiting.seats) else { break };
            // The next request waits for enough seats: smaller requests must not overtake it forever.
            if !self.fits(seats) {
                break;
            }
            let queue = &mut self.queues[at];
            let Some(waiting) = queue.waiting.pop_front() else { break };
            queue.waiting_seats -= seats;
            self.waiting -= 1;
            self.waiting_seats -= seats;
            self.start(at, seats);
            self.robin = at + 1;
            run.push(waiting.token);
        }
        run
    }

    fn first_to_finish(&self) -> Option<usize> {
        let count = self.queues.len();
        let mut best: Option<(f64, usize)> = None;
        for step in 0..count {
            let at = (self.robin + step) % count;
            let Some(front) = self.queues[at].waiting.front() else { continue };
            let finish = self.queues[at].next_start + ESTIMATE * f64::from(front.seats);
            if best.is_none_or(|(least, _)| finish < least) {
                best = Some((finish, at));
            }
        }
        best.map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests;
