//! A work queue of keys: a key waits once however often it is added, nobody works on it twice at the
//! same time, and one that failed comes back later and later.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::Key;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1000);

#[derive(Default)]
pub struct Queue {
    core: Mutex<Core>,
    moved: Notify,
    ended: watch::Sender<bool>,
}

impl Queue {
    pub fn add(&self, key: Key) {
        self.core().add(key);
        self.moved.notify_one();
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
            let (next, more) = {
                let mut core = self.core();
                (core.take(Instant::now()), core.has_more())
            };
            match next {
                Next::Closed => return None,
                Next::Key(key) => {
                    // Of two that are added at once only one wakes somebody.
                    if more {
                        self.moved.notify_one();
                    }
                    return Some(key);
                }
                Next::Nothing => moved.await,
                Next::At(time) => drop(tokio::time::timeout_at(time, moved).await),
            }
        }
    }

    /// Ends the work on a key.
    pub fn done(&self, key: Key, ended: Ended) {
        self.core().done(key, ended, Instant::now());
        self.moved.notify_one();
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the work on a key has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// It comes back after this, whether something changes or not.
    Again(Duration),
    /// It comes back after a pause that grows.
    Failed,
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
    /// Keys that are to be worked on; one whose work is under way waits here alone.
    dirty: HashSet<Key>,
    busy: HashSet<Key>,
    /// By when they are due, and a number that keeps two of one time apart.
    later: BTreeMap<(Instant, u64), Key>,
    due: HashMap<Key, (Instant, u64)>,
    failures: HashMap<Key, u32>,
    number: u64,
    closed: bool,
}

impl Core {
    fn add(&mut self, key: Key) {
        if self.dirty.insert(key.clone()) && !self.busy.contains(&key) {
            self.ready.push_back(key);
        }
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

    fn take(&mut self, now: Instant) -> Next {
        if self.closed {
            return Next::Closed;
        }
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
        match (self.ready.pop_front(), self.later.first_key_value()) {
            (Some(key), _) => {
                self.dirty.remove(&key);
                self.busy.insert(key.clone());
                Next::Key(key)
            }
            (None, Some(((time, _), _))) => Next::At(*time),
            (None, None) => Next::Nothing,
        }
    }

    /// Whether somebody else could be at work too, or has to wait for what is delayed.
    fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.later.is_empty()
    }

    fn done(&mut self, key: Key, ended: Ended, now: Instant) {
        self.busy.remove(&key);
        if self.dirty.contains(&key) {
            self.ready.push_back(key.clone());
        }
        match ended {
            Ended::Done => drop(self.failures.remove(&key)),
            Ended::Again(pause) => {
                self.failures.remove(&key);
                self.add_at(key, now + pause);
            }
            Ended::Failed => self.fail(key, now),
        }
    }

    fn fail(&mut self, key: Key, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(LONGEST_PAUSE);
        *failures = (*failures + 1).min(31);
        self.add_at(key, now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::from(text)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_is_worked_on_once() {
        let (mut core, now) = (Core::default(), Instant::now());
        for text in ["a", "b", "a"] {
            core.add(key(text));
        }
        assert_eq!(core.take(now), Next::Key(key("a")));
        core.add(key("a"));
        assert_eq!(core.take(now), Next::Key(key("b")));
        assert_eq!(core.take(now), Next::Nothing, "a is being worked on");
        core.done(key("a"), Ended::Done, now);
        assert_eq!(core.take(now), Next::Key(key("a")), "it was added meanwhile");
        core.done(key("a"), Ended::Done, now);
        assert_eq!(core.take(now), Next::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_later_and_later() {
        let (mut core, mut now) = (Core::default(), Instant::now());
        core.add(key("a"));
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert_eq!(core.take(now), Next::Key(key("a")));
            core.done(key("a"), Ended::Failed, now);
            let Next::At(time) = core.take(now) else { panic!("it comes back") };
            pauses.push((time - now).as_millis());
            now = time;
        }
        assert_eq!(pauses[..4], [5, 10, 20, 40]);
        assert_eq!(pauses[19], LONGEST_PAUSE.as_millis());
        assert_eq!(core.take(now), Next::Key(key("a")));
        core.done(key("a"), Ended::Done, now);
        assert!(core.failures.is_empty() && core.due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_delays_the_shorter_counts() {
        let (mut core, now) = (Core::default(), Instant::now());
        let second = Duration::from_secs(1);
        core.add_at(key("a"), now + second * 5);
        core.add_at(key("a"), now + second);
        core.add_at(key("a"), now + second * 3);
        assert_eq!(core.take(now), Next::At(now + second));
        assert_eq!(core.take(now + second), Next::Key(key("a")));
        core.done(key("a"), Ended::Again(second * 7), now + second);
        assert_eq!(core.take(now + second * 2), Next::At(now + second * 8), "it asked to come back");
        assert_eq!(core.take(now + second * 8), Next::Key(key("a")));
        core.done(key("a"), Ended::Done, now + second * 8);
        assert_eq!(core.take(now + second * 99), Next::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_woken() {
        let queue = std::sync::Arc::new(Queue::default());
        let waiter = tokio::spawn({
            let queue = queue.clone();
            async move {
                let first = queue.next().await;
                first.clone().into_iter().for_each(|key| queue.done(key, Ended::Done));
                (first, queue.next().await, queue.next().await)
            }
        });
        queue.add_after(key("b"), Duration::from_secs(60));
        queue.add(key("a"));
        tokio::time::sleep(Duration::from_secs(61)).await;
        queue.close();
        assert_eq!(waiter.await.expect("it ends"), (Some(key("a")), Some(key("b")), None));
    }
}
