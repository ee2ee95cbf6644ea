//! Pods that wait: those to be tried, those that pause after a failure, those that wait for an event, and
//! those that are held back. Plain state; the time comes from outside, and nothing depends on the order of a
//! hash map.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Str;
use tokio::time::Instant;

use crate::framework::Plugin;
use crate::model::Pod;

/// How long a pod pauses after it was refused: the first time, doubling each time, and at most.
pub const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
pub const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);
/// Nobody waits for an event longer than this.
pub const LONGEST_PARKED: Duration = Duration::from_secs(300);

/// Pauses that end so close together end at once, as far as who comes first is concerned.
const SAME_WINDOW: Duration = Duration::from_secs(1);

/// A pod that waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub pod: Arc<Pod>,
    /// When it came, or was last refused.
    pub since: Instant,
    /// When it was first tried.
    pub first_tried: Option<Instant>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it was refused or failed in a row, for its pause.
    pub failures: u32,
    /// Names of the plugins that refused it when it was last tried.
    pub refused_by: Vec<&'static str>,
}

/// Where a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Active,
    /// Until then. One that failed by an error pauses to the end; others go on where nobody else wants to.
    BackOff {
        until: Instant,
        is_error: bool,
    },
    /// Until an event that may help.
    Parked,
    /// A plugin does not let it be tried.
    Gated,
    /// Somebody is at it; `missed` once something happened meanwhile that could have helped.
    Taken {
        missed: bool,
    },
}

impl Place {
    /// What metrics call it; "" for one that somebody is at.
    pub fn label(self) -> &'static str {
        match self {
            Place::Active => "active",
            Place::BackOff { .. } => "backoff",
            Place::Parked => "unschedulable",
            Place::Gated => "gated",
            Place::Taken { .. } => "",
        }
    }
}

struct Entry {
    waiting: Waiting,
    place: Place,
    /// Which of the places in the structures below is its own; others are stale.
    number: u64,
}

impl Entry {
    fn pauses_after_refusal(&self) -> bool {
        matches!(self.place, Place::BackOff { is_error: false, .. })
    }
}

pub struct Queue {
    sort: Arc<dyn Plugin>,
    first_back_off: Duration,
    longest_back_off: Duration,
    /// By uid. Never walked through.
    entries: HashMap<Str, Entry>,
    active: BinaryHeap<Turn>,
    backing_off: BTreeMap<(Instant, u64), Str>,
    /// By number, which is the order in which they came.
    parked: BTreeMap<u64, Str>,
    number: u64,
}

/// A place in the heap of those to be tried.
struct Turn {
    waiting: Waiting,
    number: u64,
    sort: Arc<dyn Plugin>,
}

impl Ord for Turn {
    /// The heap gives the largest first.
    fn cmp(&self, other: &Turn) -> Ordering {
        self.sort.compare(&other.waiting, &self.waiting).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Turn) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Turn) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

impl Queue {
    /// `sort` says who comes first.
    pub fn new(sort: Arc<dyn Plugin>) -> Queue {
        Queue {
            sort,
            first_back_off: FIRST_BACK_OFF,
            longest_back_off: LONGEST_BACK_OFF,
            entries: HashMap::new(),
            active: BinaryHeap::new(),
            backing_off: BTreeMap::new(),
            parked: BTreeMap::new(),
            number: 0,
        }
    }

    pub fn set_back_off(&mut self, first: Duration, longest: Duration) {
        (self.first_back_off, self.longest_back_off) = (first, longest);
    }

    pub fn get(&self, uid: &str) -> Option<(&Waiting, Place)> {
        self.entries.get(uid).map(|entry| (&entry.waiting, entry.place))
    }

    /// A pod that was not here. `gated_by` names a plugin that does not let it be tried.
    pub fn add(&mut self, pod: Arc<Pod>, gated_by: Option<&'static str>, now: Instant) {
        let refused_by = gated_by.into_iter().collect();
        let waiting = Waiting { pod, since: now, first_tried: None, attempts: 0, failures: 0, refused_by };
        let uid = waiting.pod.uid.clone();
        self.entries.insert(uid.clone(), Entry { waiting, place: Place::Gated, number: 0 });
        if gated_by.is_none() {
            self.activate(&uid);
        }
    }

    /// The same pod as it is now; where it waits does not change.
    pub fn update(&mut self, pod: Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(&pod.uid) {
            entry.waiting.pod = pod;
        }
    }

    /// A plugin does not let it be tried any more, or again.
    pub fn gate(&mut self, uid: &str, gated_by: Option<&'static str>) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match (gated_by, entry.place) {
            (Some(_), Place::Taken { .. }) => {}
            (Some(plugin), _) => {
                entry.waiting.refused_by = vec![plugin];
                self.settle(uid, Place::Gated);
            }
            (None, Place::Gated) => self.activate(uid),
            (None, _) => {}
        }
    }

    pub fn remove(&mut self, uid: &str) -> Option<Waiting> {
        self.leave(uid);
        self.entries.remove(uid).map(|entry| entry.waiting)
    }

    /// The next pod to be tried. Where nobody else wants to, one that pauses after a refusal is tried early:
    /// something has happened for it.
    pub fn pop(&mut self, now: Instant) -> Option<Waiting> {
        self.wake_due(now);
        let uid = self.next_active().or_else(|| self.next_backing_off())?;
        self.leave(&uid);
        let entry = self.entries.get_mut(&uid)?;
        entry.place = Place::Taken { missed: false };
        entry.waiting.attempts += 1;
        entry.waiting.first_tried.get_or_insert(now);
        Some(entry.waiting.clone())
    }

    fn next_active(&mut self) -> Option<Str> {
        while let Some(turn) = self.active.pop() {
            let uid = &turn.waiting.pod.uid;
            let is_there = |entry: &Entry| entry.place == Place::Active && entry.number == turn.number;
            if self.entries.get(uid).is_some_and(is_there) {
                return Some(uid.clone());
            }
        }
        None
    }

    /// Of those whose pauses end within a second of the first one's, whoever comes first.
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

    /// It was refused by these plugins and waits for something to happen.
    pub fn park(&mut self, uid: &str, refused_by: Vec<&'static str>, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.waiting.refused_by = refused_by;
        entry.waiting.failures += 1;
        entry.waiting.since = now;
        let missed = entry.place == Place::Taken { missed: true };
        self.settle(uid, Place::Parked);
        if missed {
            self.wake(uid, now);
        }
    }

    /// It failed by an error, and is tried again after a pause.
    pub fn retry(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.waiting.failures += 1;
        entry.waiting.since = now;
        let until = now + self.pause(uid);
        self.settle(uid, Place::BackOff { until, is_error: true });
    }

    /// Something happened: those whom it may help are tried again. Where they are now. What keeps the others may
    /// have changed.
    pub fn happened(&mut self, now: Instant, mut may_help: impl FnMut(&mut Waiting) -> bool) -> Vec<Place> {
        let entries = &mut self.entries;
        let mut waiting = |uid: &&Str| entries.get_mut(*uid).is_some_and(|entry| may_help(&mut entry.waiting));
        let helped: Vec<Str> = self.parked.values().filter(|uid| waiting(uid)).cloned().collect();
        helped.iter().for_each(|uid| self.wake(uid, now));
        helped.iter().filter_map(|uid| Some(self.entries.get(uid)?.place)).collect()
    }

    /// Something happened to a pod that somebody is at.
    pub fn miss(&mut self, uid: &str) {
        if let Some(Entry { place: Place::Taken { missed }, .. }) = self.entries.get_mut(uid) {
            *missed = true;
        }
    }

    /// Lets a pod that waits for an event be tried again, once its pause is over.
    pub fn wake(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get(uid) else { return };
        if entry.place != Place::Parked {
            return;
        }
        let until = entry.waiting.since + self.pause(uid);
        if until <= now {
            return self.activate(uid);
        }
        self.settle(uid, Place::BackOff { until, is_error: false });
    }

    /// When something is due by itself.
    pub fn next_due(&self) -> Option<Instant> {
        let back = self.backing_off.keys().next().map(|(until, _)| *until);
        let parked = self.parked.values().next().and_then(|uid| self.entries.get(uid));
        let flush = parked.map(|entry| entry.waiting.since + LONGEST_PARKED);
        back.into_iter().chain(flush).min()
    }

    fn wake_due(&mut self, now: Instant) {
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
        let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        if failures == 0 {
            Duration::ZERO
        } else {
            self.first_back_off.saturating_mul(doubled).min(self.longest_back_off)
        }
    }

    fn activate(&mut self, uid: &str) {
        self.settle(uid, Place::Active);
    }

    /// Puts a pod into another place.
    fn settle(&mut self, uid: &str, place: Place) {
        self.leave(uid);
        self.number += 1;
        let number = self.number;
        let Some(entry) = self.entries.get_mut(uid) else { return };
        (entry.place, entry.number) = (place, number);
        let uid = entry.waiting.pod.uid.clone();
        match place {
            Place::Active => {
                let turn = Turn { waiting: entry.waiting.clone(), number, sort: self.sort.clone() };
                self.active.push(turn);
            }
            Place::BackOff { until, .. } => drop(self.backing_off.insert((until, number), uid)),
            Place::Parked => drop(self.parked.insert(number, uid)),
            Place::Gated | Place::Taken { .. } => {}
        }
    }

    /// The heap is left to find out by itself.
    fn leave(&mut self, uid: &str) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.place {
            Place::BackOff { until, .. } => drop(self.backing_off.remove(&(until, entry.number))),
            Place::Parked => drop(self.parked.remove(&entry.number)),
            Place::Active | Place::Gated | Place::Taken { .. } => {}
        }
    }

    /// How many pods each plugin keeps waiting, by the name of the scheduler and of the plugin.
    pub fn refused(&self) -> BTreeMap<(Str, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| matches!(entry.place, Place::Parked | Place::Gated)) {
            for plugin in &entry.waiting.refused_by {
                *counts.entry((entry.waiting.pod.scheduler_name.clone(), *plugin)).or_default() += 1;
            }
        }
        counts
    }

    /// How many there are: active, pausing, parked, gated.
    pub fn counts(&self) -> Counts {
        let (backing_off, parked) = (self.backing_off.len(), self.parked.len());
        let mut counts = Counts { active: 0, backing_off, parked, gated: 0 };
        for entry in self.entries.values() {
            counts.active += usize::from(entry.place == Place::Active);
            counts.gated += usize::from(entry.place == Place::Gated);
        }
        counts
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub active: usize,
    pub backing_off: usize,
    pub parked: usize,
    pub gated: usize,
}

#[cfg(test)]
mod tests;
