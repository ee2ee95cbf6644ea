//! A work queue of keys: a key waits once however often it is added, nobody works on it twice at the
//! same time, and one that failed comes back later and later. It holds no more than there are keys.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Key;
use crate::metrics::QueueMetrics;
use crate::ordered as watch;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1000);
/// Of all keys that failed, so many come back at once, and then ten in a second.
const BURST: u32 = 100;
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Queue {
    core: Mutex<Core>,
    moved: Notify,
    ended: watch::Sender<bool>,
    metrics: Option<QueueMetrics>,
}

/// How the work on a key has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkResult {
    Done,
    /// It comes back after this, whether something changes or not.
    RequeueAfter(Duration),
    /// It comes back after a pause that grows.
    Failed,
}

impl Queue {
    /// One in which nothing that failed waits for longer than that.
    pub fn within(longest_pause: Duration) -> Queue {
        let core = Core { longest_pause: Some(longest_pause), ..Core::default() };
        Queue { core: Mutex::new(core), ..Queue::default() }
    }

    pub fn counted(metrics: QueueMetrics) -> Queue {
        Queue { metrics: Some(metrics), ..Queue::default() }
    }

    pub fn add(&self, key: Key) {
        let mut core = self.core();
        let added = core.add(key, Instant::now());
        self.count(&core, added);
        drop(core);
        if added > 0 {
            self.moved.notify_one();
        }
    }

    pub fn add_after(&self, key: Key, pause: Duration) {
        self.core().add_at(key, Instant::now() + pause);
        self.moved.notify_one();
    }

    /// Takes no more; whoever waits is told.
    pub fn close(&self) {
        self.core().closed = true;
        self.ended.send_replace(true);
        self.moved.notify_waiters();
        self.moved.notify_one();
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// The next key, whose work is then under way until `done`; None once the queue is closed.
    pub async fn next(&self) -> Option<Key> {
        loop {
            // Made before the question is asked: what is added in between is not missed.
            let moved = self.moved.notified();
            match self.take() {
                Next::Closed => return None,
                Next::Key(key) => return Some(key),
                Next::Nothing => moved.await,
                Next::At(time) => drop(tokio::time::timeout_at(time, moved).await),
            }
        }
    }

    fn take(&self) -> Next {
        let now = Instant::now();
        let mut core = self.core();
        let due = core.wake(now);
        let next = core.take(now);
        self.count(&core, due);
        if let (Next::Key(key), Some(metrics)) = (&next, &self.metrics) {
            metrics.waited.observe(core.waited(key).as_secs_f64());
        }
        // Of two that are added at once only one wakes somebody, and who is woken for what is delayed may
        // get something else to do.
        if core.closed || (matches!(next, Next::Key(_)) && core.has_more()) {
            self.moved.notify_one();
        }
        next
    }

    /// Ends the work on a key.
    pub fn done(&self, key: Key, ended: WorkResult) {
        let now = Instant::now();
        let mut core = self.core();
        let took = core.done(key, ended, now);
        self.count(&core, 0);
        drop(core);
        if let Some(metrics) = &self.metrics {
            metrics.worked.observe(took.as_secs_f64());
            if ended != WorkResult::Done {
                metrics.retries.inc();
            }
        }
        self.moved.notify_one();
    }

    /// How long the work under way has taken: all of it, and the longest.
    pub fn under_way(&self) -> (Duration, Duration) {
        let now = Instant::now();
        let core = self.core();
        let times = core.busy.values().map(|(started, _)| now - *started);
        times.fold(Default::default(), |(all, longest), time| (all + time, longest.max(time)))
    }

    fn count(&self, core: &Core, added: usize) {
        if let Some(metrics) = &self.metrics {
            metrics.adds.inc_by(added as u64);
            metrics.depth.set(i64::try_from(core.ready.len()).unwrap_or(i64::MAX));
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }
}

#[derive(Debug, PartialEq)]
enum Next {
    Key(Key),
    /// The first key that was delayed is due then.
    At(Instant),
    Nothing,
    Closed,
}

/// The queue as plain state; the time comes from outside.
#[derive(Default)]
struct Core {
    ready: VecDeque<Key>,
    /// Keys that are to be worked on, and since when; one whose work is under way waits here alone.
    dirty: HashMap<Key, Instant>,
    /// Since when, and how long it had waited before.
    busy: HashMap<Key, (Instant, Duration)>,
    /// By when they are due, and a number that keeps two of one time apart.
    later: BTreeMap<(Instant, u64), Key>,
    due: HashMap<Key, (Instant, u64)>,
    failures: HashMap<Key, u32>,
    longest_pause: Option<Duration>,
    /// When the bucket of those that come back is full again.
    bucket_full: Option<Instant>,
    number: u64,
    closed: bool,
}

impl Core {
    /// How many came to wait by that: one or none.
    fn add(&mut self, key: Key, now: Instant) -> usize {
        if self.closed || self.dirty.contains_key(&key) {
            return 0;
        }
        self.dirty.insert(key.clone(), now);
        if !self.busy.contains_key(&key) {
            self.ready.push_back(key);
        }
        1
    }

    /// Of two times for one key the earlier one counts.
    fn add_at(&mut self, key: Key, time: Instant) {
        if let Some(place) = self.due.get(&key) {
            if place.0 <= time {
                return;
            }
            self.later.remove(place);
        }
        self.number += 1;
        let place = (time, self.number);
        self.later.insert(place, key.clone());
        self.due.insert(key, place);
    }

    /// Adds what is due; how many that were.
    fn wake(&mut self, now: Instant) -> usize {
        let mut added = 0;
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.due.remove(&key);
            added += self.add(key, now);
        }
        added
    }

    fn take(&mut self, now: Instant) -> Next {
        if self.closed {
            return Next::Closed;
        }
        match (self.ready.pop_front(), self.later.first_key_value()) {
            (Some(key), _) => {
                let waited = self.dirty.remove(&key).map_or(Duration::ZERO, |since| now - since);
                self.busy.insert(key.clone(), (now, waited));
                Next::Key(key)
            }
            (None, Some(((time, _), _))) => Next::At(*time),
            (None, None) => Next::Nothing,
        }
    }

    fn waited(&self, key: &Key) -> Duration {
        self.busy.get(key).map_or(Duration::ZERO, |(_, waited)| *waited)
    }

    /// Whether somebody else could be at work too, or has to wait for what is delayed.
    fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.later.is_empty()
    }

    /// How long the work took.
    fn done(&mut self, key: Key, ended: WorkResult, now: Instant) -> Duration {
        let took = self.busy.remove(&key).map_or(Duration::ZERO, |(started, _)| now - started);
        if self.dirty.contains_key(&key) {
            self.ready.push_back(key.clone());
        }
        match ended {
            WorkResult::Done => drop(self.failures.remove(&key)),
            WorkResult::RequeueAfter(pause) => {
                self.failures.remove(&key);
                self.add_at(key, now + pause);
            }
            WorkResult::Failed => self.fail(key, now),
        }
        took
    }

    fn fail(&mut self, key: Key, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let longest = self.longest_pause.unwrap_or(LONGEST_PAUSE);
        let pause = FIRST_PAUSE.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(longest);
        *failures = (*failures + 1).min(31);
        let time = (now + pause).max(self.turn(now));
        self.add_at(key, time);
    }

    /// When the next of all that failed may come back.
    fn turn(&mut self, now: Instant) -> Instant {
        let full = self.bucket_full.unwrap_or(now).max(now) + INTERVAL;
        self.bucket_full = Some(full);
        full.checked_sub(INTERVAL * BURST).unwrap_or(now).max(now)
    }
}

#[cfg(test)]
mod tests;
