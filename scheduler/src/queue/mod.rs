//! The scheduling queue: active pods, pods in backoff, unschedulable pods that wait for an event, and gated pods.
//! Plain state; time is passed in, and nothing depends on the order of a hash map.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use stdx::backoff::pause_after;
use stdx::clock::timer_pause;
use tokio::time::Instant;

use crate::framework::{Plugin, QueuedPod};
use podmodel::Pod;

/// The backoff after a rejection: the initial value, doubled each time, and the maximum.
pub(crate) const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);
/// The maximum time that a pod waits for an event.
pub(crate) const LONGEST_PARKED: Duration = Duration::from_secs(300);

/// Backoffs that expire within this window count as simultaneous for ordering.
const SAME_WINDOW: Duration = Duration::from_secs(1);

/// The state of a queued pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueState {
    Active,
    /// Until then. After an error the backoff is always completed; after a rejection it ends early if the queue is
    /// empty.
    BackOff {
        until: Instant,
        is_error: bool,
    },
    /// Until an event that may help.
    Parked,
    /// A PreEnqueue plugin gates it.
    Gated,
    /// An attempt is in progress; `missed` if an event that could help occurred meanwhile.
    Taken {
        missed: bool,
    },
}

impl QueueState {
    /// The name in metrics; empty during an attempt.
    pub(crate) fn label(self) -> &'static str {
        match self {
            QueueState::Active => "active",
            QueueState::BackOff { .. } => "backoff",
            QueueState::Parked => "unschedulable",
            QueueState::Gated => "gated",
            QueueState::Taken { .. } => "",
        }
    }
}

struct Entry {
    waiting: QueuedPod,
    place: QueueState,
    /// The number of its valid entry in the structures below; others are stale.
    number: u64,
}

impl Entry {
    fn pauses_after_refusal(&self) -> bool {
        matches!(self.place, QueueState::BackOff { is_error: false, .. })
    }
}

pub(crate) struct Queue {
    sort: Arc<dyn Plugin>,
    first_back_off: Duration,
    longest_back_off: Duration,
    /// By uid. Never iterated.
    entries: HashMap<Str, Entry>,
    active: BinaryHeap<ActiveEntry>,
    backing_off: BTreeMap<(Instant, u64), Str>,
    /// By number, which is the order of arrival.
    parked: BTreeMap<u64, Str>,
    /// By number.
    gated: BTreeMap<u64, Str>,
    number: u64,
}

/// An entry of the active heap.
struct ActiveEntry {
    waiting: QueuedPod,
    number: u64,
    sort: Arc<dyn Plugin>,
}

impl Ord for ActiveEntry {
    /// The heap returns the largest first.
    fn cmp(&self, other: &ActiveEntry) -> Ordering {
        self.sort.compare(&other.waiting, &self.waiting).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for ActiveEntry {
    fn partial_cmp(&self, other: &ActiveEntry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ActiveEntry {
    fn eq(&self, other: &ActiveEntry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ActiveEntry {}

impl Queue {
    /// `sort` is the QueueSort plugin.
    pub(crate) fn new(sort: Arc<dyn Plugin>) -> Queue {
        Queue {
            sort,
            first_back_off: FIRST_BACK_OFF,
            longest_back_off: LONGEST_BACK_OFF,
            entries: HashMap::new(),
            active: BinaryHeap::new(),
            backing_off: BTreeMap::new(),
            parked: BTreeMap::new(),
            gated: BTreeMap::new(),
            number: 0,
        }
    }

    pub(crate) fn set_back_off(&mut self, first: Duration, longest: Duration) {
        (self.first_back_off, self.longest_back_off) = (first, longest);
    }

    pub(crate) fn get(&self, uid: &str) -> Option<(&QueuedPod, QueueState)> {
        self.entries.get(uid).map(|entry| (&entry.waiting, entry.place))
    }

    /// Adds a new pod. `gated_by` is the plugin that gates it.
    pub(crate) fn add(&mut self, pod: Arc<Pod>, gated_by: Option<&'static str>, now: Instant) {
        let rejected_by = gated_by.into_iter().collect();
        let waiting = QueuedPod { pod, since: now, first_tried: None, attempts: 0, failures: 0, rejected_by };
        let uid = waiting.pod.uid.clone();
        self.entries.insert(uid.clone(), Entry { waiting, place: QueueState::Taken { missed: false }, number: 0 });
        self.move_to(&uid, if gated_by.is_some() { QueueState::Gated } else { QueueState::Active });
    }

    /// Updates the pod without moving it.
    pub(crate) fn update(&mut self, pod: Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(&pod.uid) {
            entry.waiting.pod = pod;
        }
    }

    /// Gates or ungates the pod.
    pub(crate) fn gate(&mut self, uid: &str, gated_by: Option<&'static str>) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match (gated_by, entry.place) {
            (Some(_), QueueState::Taken { .. }) => {}
            (Some(plugin), _) => {
                entry.waiting.rejected_by = vec![plugin];
                self.move_to(uid, QueueState::Gated);
            }
            (None, QueueState::Gated) => self.activate(uid),
            (None, _) => {}
        }
    }

    /// The pods that a PreEnqueue plugin gates, in the order in which they were gated.
    pub(crate) fn gated(&self) -> impl Iterator<Item = &QueuedPod> {
        self.gated.values().filter_map(|uid| self.entries.get(uid)).map(|entry| &entry.waiting)
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Option<QueuedPod> {
        self.remove_entry(uid);
        self.entries.remove(uid).map(|entry| entry.waiting)
    }

    /// The next pod to attempt. If there is no other, a pod in backoff after a rejection is attempted early, since an
    /// event may have helped it.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<QueuedPod> {
        self.requeue_due(now);
        let uid = self.next_active().or_else(|| self.next_backing_off())?;
        self.remove_entry(&uid);
        let entry = self.entries.get_mut(&uid)?;
        entry.place = QueueState::Taken { missed: false };
        entry.waiting.attempts += 1;
        entry.waiting.first_tried.get_or_insert(now);
        Some(entry.waiting.clone())
    }

    fn next_active(&mut self) -> Option<Str> {
        while let Some(turn) = self.active.pop() {
            let uid = &turn.waiting.pod.uid;
            let is_there = |entry: &Entry| entry.place == QueueState::Active && entry.number == turn.number;
            if self.entries.get(uid).is_some_and(is_there) {
                return Some(uid.clone());
            }
        }
        None
    }

    /// The first by queue order among pods whose backoff ends within a second of the earliest.
    fn next_backing_off(&self) -> Option<Str> {
        let may = |uid: &Str| self.entries.get(uid).filter(|entry| entry.pauses_after_refusal());
        let mut all = self.backing_off.iter().filter_map(|((until, _), uid)| Some((*until, may(uid)?)));
        let (first, mut best) = all.next()?;
        for (_, entry) in all.take_while(|(until, _)| *until <= first + SAME_WINDOW) {
            if self.sort.compare(&entry.waiting, &best.waiting) == Ordering::Less {
                best = entry;
            }
        }
        Some(best.waiting.pod.uid.clone())
    }

    /// Marks a pod that these plugins rejected; it waits for an event.
    pub(crate) fn mark_unschedulable(&mut self, uid: &str, rejected_by: Vec<&'static str>, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.waiting.rejected_by = rejected_by;
        entry.waiting.failures += 1;
        entry.waiting.since = now;
        let missed = entry.place == QueueState::Taken { missed: true };
        self.move_to(uid, QueueState::Parked);
        if missed {
            self.requeue(uid, now);
        }
    }

    /// Retries a pod that failed with an error, after a backoff.
    pub(crate) fn retry(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.waiting.failures += 1;
        entry.waiting.since = now;
        let until = now + self.pause(uid);
        self.move_to(uid, QueueState::BackOff { until, is_error: true });
    }

    /// Requeues the pods that an event may help; returns where they are now. `may_help` may update the rejecting
    /// plugins.
    pub(crate) fn requeue_by_event(
        &mut self,
        now: Instant,
        mut may_help: impl FnMut(&mut QueuedPod) -> bool,
    ) -> Vec<QueueState> {
        let entries = &mut self.entries;
        let mut waiting = |uid: &&Str| entries.get_mut(*uid).is_some_and(|entry| may_help(&mut entry.waiting));
        let helped: Vec<Str> = self.parked.values().filter(|uid| waiting(uid)).cloned().collect();
        helped.iter().for_each(|uid| self.requeue(uid, now));
        helped.iter().filter_map(|uid| Some(self.entries.get(uid)?.place)).collect()
    }

    /// An event concerns a pod with an attempt in progress.
    pub(crate) fn record_missed_event(&mut self, uid: &str) {
        if let Some(Entry { place: QueueState::Taken { missed }, .. }) = self.entries.get_mut(uid) {
            *missed = true;
        }
    }

    /// Requeues an unschedulable pod, after its backoff.
    pub(crate) fn requeue(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get(uid) else { return };
        if entry.place != QueueState::Parked {
            return;
        }
        let until = entry.waiting.since + self.pause(uid);
        if until <= now {
            return self.activate(uid);
        }
        self.move_to(uid, QueueState::BackOff { until, is_error: false });
    }

    /// The next time at which something is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let back = self.backing_off.keys().next().map(|(until, _)| *until);
        let parked = self.parked.values().next().and_then(|uid| self.entries.get(uid));
        let flush = parked.map(|entry| entry.waiting.since + LONGEST_PARKED);
        back.into_iter().chain(flush).min()
    }

    fn requeue_due(&mut self, now: Instant) {
        while let Some((_, uid)) = self.backing_off.first_key_value().filter(|((until, _), _)| *until <= now) {
            let uid = uid.clone();
            self.activate(&uid);
        }
        let is_old = |entry: &&Entry| entry.waiting.since + LONGEST_PARKED <= now;
        while let Some(entry) = self.parked.values().next().and_then(|uid| self.entries.get(uid)).filter(is_old) {
            let uid = entry.waiting.pod.uid.clone();
            self.activate(&uid);
        }
    }

    fn pause(&self, uid: &str) -> Duration {
        let failures = self.entries.get(uid).map_or(0, |entry| entry.waiting.failures);
        if failures == 0 {
            return Duration::ZERO;
        }
        timer_pause(pause_after(failures, self.first_back_off, self.longest_back_off))
    }

    fn activate(&mut self, uid: &str) {
        self.move_to(uid, QueueState::Active);
    }

    /// Moves a pod.
    fn move_to(&mut self, uid: &str, place: QueueState) {
        self.remove_entry(uid);
        self.number += 1;
        let number = self.number;
        let Some(entry) = self.entries.get_mut(uid) else { return };
        (entry.place, entry.number) = (place, number);
        let uid = entry.waiting.pod.uid.clone();
        match place {
            QueueState::Active => {
                let turn = ActiveEntry { waiting: entry.waiting.clone(), number, sort: self.sort.clone() };
                self.active.push(turn);
            }
            QueueState::BackOff { until, .. } => drop(self.backing_off.insert((until, number), uid)),
            QueueState::Parked => drop(self.parked.insert(number, uid)),
            QueueState::Gated => drop(self.gated.insert(number, uid)),
            QueueState::Taken { .. } => {}
        }
    }

    /// The heap drops stale entries lazily.
    fn remove_entry(&mut self, uid: &str) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.place {
            QueueState::BackOff { until, .. } => drop(self.backing_off.remove(&(until, entry.number))),
            QueueState::Parked => drop(self.parked.remove(&entry.number)),
            QueueState::Gated => drop(self.gated.remove(&entry.number)),
            QueueState::Active | QueueState::Taken { .. } => {}
        }
    }

    /// The number of unschedulable pods by scheduler name and plugin.
    pub(crate) fn refused(&self) -> BTreeMap<(Str, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| matches!(entry.place, QueueState::Parked | QueueState::Gated))
        {
            for plugin in &entry.waiting.rejected_by {
                *counts.entry((entry.waiting.pod.scheduler_name.clone(), *plugin)).or_default() += 1;
            }
        }
        counts
    }

    /// Counts by queue: active, backoff, unschedulable, gated.
    pub(crate) fn counts(&self) -> Counts {
        let (backing_off, parked) = (self.backing_off.len(), self.parked.len());
        let mut counts = Counts { active: 0, backing_off, parked, gated: 0 };
        for entry in self.entries.values() {
            counts.active += usize::from(entry.place == QueueState::Active);
            counts.gated += usize::from(entry.place == QueueState::Gated);
        }
        counts
    }
}

/// The number of pods in each part of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub active: usize,
    pub backing_off: usize,
    pub parked: usize,
    pub gated: usize,
}

#[cfg(test)]
mod tests;
