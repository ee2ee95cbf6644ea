//! A deduplicating work queue: a key is queued once however often it is added, is processed by one worker at a time,
//! and failed keys are requeued with backoff. It holds no more entries than there are keys.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};
use stdx::backoff::pause_after;
use stdx::clock::timer_pause;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Key;
use crate::ordered as watch;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1000);
/// The global rate limit of failed keys: a burst, then ten per second.
const BURST: u32 = 100;
const INTERVAL: Duration = Duration::from_millis(100);

/// A work queue of keys: a key is processed by one worker at a time, and waits at most once.
#[derive(Default)]
pub struct Queue {
    core: Mutex<Core>,
    moved: Notify,
    ended: watch::Sender<bool>,
    metrics: Option<QueueMetrics>,
}

/// The result of processing a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkResult {
    Done,
    /// Requeue after this duration, whether or not something changes.
    RequeueAfter(Duration),
    /// Requeue with exponential backoff.
    Failed,
}

/// The metrics of one queue.
pub struct QueueMetrics {
    pub depth: IntGauge,
    pub adds: IntCounter,
    pub waited: Histogram,
    pub worked: Histogram,
    pub retries: IntCounter,
}

impl Queue {
    /// A queue with a maximum backoff.
    pub fn within(longest_pause: Duration) -> Queue {
        let core = Core { longest_pause: Some(longest_pause), ..Core::default() };
        Queue { core: Mutex::new(core), ..Queue::default() }
    }

    /// A queue with metrics.
    pub fn counted(metrics: QueueMetrics) -> Queue {
        Queue { metrics: Some(metrics), ..Queue::default() }
    }

    /// Adds a key, unless it waits already.
    pub fn add(&self, key: Key) {
        let mut core = self.core();
        let added = core.add(key, Instant::now());
        self.count(&core, added);
        drop(core);
        if added > 0 {
            self.moved.notify_one();
        }
    }

    /// Adds a key after a pause.
    pub fn add_after(&self, key: Key, pause: Duration) {
        self.core().add_at(key, Instant::now() + timer_pause(pause));
        self.moved.notify_one();
    }

    /// Closes the queue and wakes all waiters.
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

    /// The next key, which is in progress until `done`; None once the queue is closed.
    pub async fn next(&self) -> Option<Key> {
        loop {
            // Created before the check, so that additions in between are not missed.
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
        let due = core.add_due(now);
        let next = core.take(now);
        self.count(&core, due);
        if let (Next::Key(key), Some(metrics)) = (&next, &self.metrics) {
            metrics.waited.observe(core.queue_time(key).as_secs_f64());
        }
        // Of two concurrent additions only one wakes a worker, and a worker woken for a delayed key may get another
        // one.
        if core.closed || (matches!(next, Next::Key(_)) && core.has_more()) {
            self.moved.notify_one();
        }
        next
    }

    /// Finishes processing a key.
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

    /// The total and the longest duration of work in progress.
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
    /// When the first delayed key is due.
    At(Instant),
    Nothing,
    Closed,
}

/// The queue as plain state; time is passed in.
#[derive(Default)]
struct Core {
    ready: VecDeque<Key>,
    /// Queued keys and since when; keys in progress that were added again are only here.
    dirty: HashMap<Key, Instant>,
    /// Start time, and how long it was queued.
    busy: HashMap<Key, (Instant, Duration)>,
    /// By due time, with a number to distinguish equal times.
    later: BTreeMap<(Instant, u64), Key>,
    due: HashMap<Key, (Instant, u64)>,
    failures: HashMap<Key, u32>,
    longest_pause: Option<Duration>,
    /// When the token bucket of failed keys is full again.
    bucket_full: Option<Instant>,
    number: u64,
    closed: bool,
}

impl Core {
    /// The number of keys added to the queue: one or none.
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

    /// The earlier of two due times counts.
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

    /// Adds due keys; returns how many.
    fn add_due(&mut self, now: Instant) -> usize {
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

    fn queue_time(&self, key: &Key) -> Duration {
        self.busy.get(key).map_or(Duration::ZERO, |(_, waited)| *waited)
    }

    /// Whether another worker should be woken.
    fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.later.is_empty()
    }

    /// Returns the processing time.
    fn done(&mut self, key: Key, ended: WorkResult, now: Instant) -> Duration {
        let started = self.busy.remove(&key).map(|(started, _)| started);
        // A key that is not in progress is in the ready queue already if it was added again.
        if started.is_some() && self.dirty.contains_key(&key) {
            self.ready.push_back(key.clone());
        }
        match ended {
            WorkResult::Done => drop(self.failures.remove(&key)),
            WorkResult::RequeueAfter(pause) => {
                self.failures.remove(&key);
                self.add_at(key, now + timer_pause(pause));
            }
            WorkResult::Failed => self.fail(key, now),
        }
        started.map_or(Duration::ZERO, |started| now - started)
    }

    fn fail(&mut self, key: Key, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let longest = self.longest_pause.unwrap_or(LONGEST_PAUSE);
        *failures = failures.saturating_add(1);
        let pause = pause_after(*failures, FIRST_PAUSE, longest);
        let time = (now + timer_pause(pause)).max(self.next_requeue_time(now));
        self.add_at(key, time);
    }

    /// When the next failed key may be requeued.
    fn next_requeue_time(&mut self, now: Instant) -> Instant {
        let full = self.bucket_full.unwrap_or(now).max(now) + INTERVAL;
        self.bucket_full = Some(full);
        full.checked_sub(INTERVAL * BURST).unwrap_or(now).max(now)
    }
}

#[cfg(test)]
mod tests;
