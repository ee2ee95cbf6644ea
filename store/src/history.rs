//! The newest events, bounded in number and bytes: watches start from them, and reads of older revisions are
//! reconstructed with them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::entries::contains;
use crate::{Entry, Event, Revision};

/// The overhead of an event besides the entry that only the history holds.
const EVENT_BYTES: usize = 192;

/// How much history a store keeps for watches.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimits {
    pub events: usize,
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { events: 20_000, bytes: 8 << 20 }
    }
}

pub(crate) struct History {
    limits: HistoryLimits,
    /// Sorted by revision. Contains every event above `floor`.
    events: VecDeque<Event>,
    bytes: usize,
    floor: Revision,
}

impl History {
    pub(crate) fn new(limits: HistoryLimits, floor: Revision) -> Self {
        Self { limits, events: VecDeque::new(), bytes: 0, floor }
    }

    /// The oldest revision that can be read or watched from.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.bytes += cost(&event);
        self.events.push_back(event);
        while self.events.len() > self.limits.events || self.bytes > self.limits.bytes {
            self.drop_oldest();
        }
    }

    /// Drops everything up to and including this revision.
    pub(crate) fn compact(&mut self, revision: Revision) {
        while self.events.front().is_some_and(|event| event.revision <= revision) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    /// Events above a revision, oldest first.
    pub(crate) fn after(&self, revision: Revision) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.range(self.events.partition_point(|event| event.revision <= revision)..)
    }

    /// The entries at a revision of the keys in a range that have changed since.
    pub(crate) fn entries_before(
        &self,
        revision: Revision,
        start: &str,
        end: &str,
    ) -> BTreeMap<Box<str>, Option<Arc<Entry>>> {
        let changed = self.after(revision).filter(|event| contains(start, end, &event.key));
        changed.rev().map(|event| (event.key.clone(), event.previous.clone())).collect()
    }

    /// Revisions are dropped as a whole: a partial one would be a gap in the history.
    fn drop_oldest(&mut self) {
        let Some(oldest) = self.events.front().map(|event| event.revision) else {
            return;
        };
        while self.events.front().is_some_and(|event| event.revision == oldest) {
            self.bytes -= self.events.pop_front().as_ref().map_or(0, cost);
        }
        self.floor = oldest;
    }
}

/// The current entry is held by the map, or is the previous of a later event: it costs nothing here.
fn cost(event: &Event) -> usize {
    EVENT_BYTES + event.key.len() + event.previous.as_ref().map_or(0, |entry| entry.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: Revision, previous_bytes: usize) -> Event {
        let entry = Entry { key: "k".into(), value: vec![0; previous_bytes].into(), revision: 1, expires: 0 };
        Event { revision, key: "k".into(), entry: None, previous: Some(Arc::new(entry)) }
    }

    #[track_caller]
    fn check(limits: HistoryLimits, revisions: &[Revision], floor: Revision, kept: &[Revision]) {
        let mut history = History::new(limits, 0);
        revisions.iter().for_each(|&revision| history.push(event(revision, 1000)));
        assert_eq!(history.floor(), floor);
        assert_eq!(history.after(0).map(|event| event.revision).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn is_bounded_and_drops_whole_revisions() {
        let many = HistoryLimits { events: 3, bytes: 1 << 20 };
        check(many, &[1, 2], 0, &[1, 2]);
        check(many, &[1, 2, 3, 4], 1, &[2, 3, 4]);
        check(many, &[1, 2, 2, 2, 3], 2, &[3]);
        check(HistoryLimits { events: 100, bytes: 2500 }, &[1, 2, 3], 1, &[2, 3]);
    }

    #[test]
    fn compaction_always_moves_the_floor() {
        let mut history = History::new(HistoryLimits::default(), 3);
        history.push(event(5, 1));
        history.compact(4);
        assert_eq!((history.floor(), history.after(0).count()), (4, 1));
        history.compact(9);
        assert_eq!((history.floor(), history.after(0).count()), (9, 0));
    }
}
