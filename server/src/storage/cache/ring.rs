//! The recent changes of one resource, in order, bounded by bytes. A change is framed for the wire once, for the first
//! watcher; later watchers send the same bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use stdx::sync::Mutex;

use super::{Item, Map};

/// One change of one object.
#[derive(Debug)]
pub struct Change {
    pub revision: u64,
    pub key: Arc<str>,
    pub old: Option<Arc<Item>>,
    pub new: Option<Arc<Item>>,
    /// Few: a frame for each watched event type and format.
    frames: Mutex<Vec<(Format, Bytes)>>,
}

/// The format of a frame: the event's type and a number for the media type and transformation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub event: &'static str,
    pub encoding: u32,
}

impl Change {
    /// None if the object exists neither before nor after.
    pub fn new(revision: u64, old: Option<Arc<Item>>, new: Option<Arc<Item>>) -> Option<Change> {
        let key = new.as_ref().or(old.as_ref())?.key.clone();
        Some(Change { revision, key, old, new, frames: Mutex::new(Vec::new()) })
    }

    /// The frame for a format; `make` builds it on the first request.
    pub fn frame(&self, format: Format, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut frames = self.frames.lock();
        if let Some((_, bytes)) = frames.iter().find(|(other, _)| *other == format) {
            return bytes.clone();
        }
        let bytes = make();
        frames.push((format, bytes.clone()));
        bytes
    }

    fn size(&self) -> usize {
        // The new object is also in the map; only this change holds the old object and the frame.
        let old = self.old.as_ref().map_or(0, |item| item.bytes.len());
        let new = self.new.as_ref().map_or(0, |item| item.bytes.len());
        old + new + 256
    }
}

/// The result of reading from a cursor.
pub enum RingRead {
    /// The changes and the cursor after them.
    Changes(Vec<Arc<Change>>, u64),
    /// No change yet.
    Empty,
    /// The ring has moved on: the watcher was too slow.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// The cursor of the first change that is kept.
    start: u64,
    bytes: usize,
    limit: usize,
    /// Every change above this revision is kept.
    floor: u64,
}

impl Ring {
    pub(crate) fn new(floor: u64, limit: usize) -> Ring {
        Ring { changes: VecDeque::new(), start: 0, bytes: 0, limit, floor }
    }

    pub(crate) fn restart(&mut self, floor: u64) {
        self.changes.clear();
        self.bytes = 0;
        self.floor = floor;
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.changes.len() as u64
    }

    pub(crate) fn push(&mut self, change: Arc<Change>) {
        self.bytes += change.size();
        self.changes.push_back(change);
        while self.bytes > self.limit && self.changes.len() > 1 {
            if let Some(oldest) = self.changes.pop_front() {
                self.bytes -= oldest.size();
                self.floor = oldest.revision;
                self.start += 1;
            }
        }
    }

    /// The cursor of the first change above a revision; None if such changes were dropped.
    pub(crate) fn cursor(&self, after: u64) -> Option<u64> {
        if after < self.floor {
            return None;
        }
        let at = self.changes.partition_point(|change| change.revision <= after);
        Some(self.start + at as u64)
    }

    pub(crate) fn read(&self, cursor: u64, budget: usize) -> RingRead {
        if cursor < self.start {
            return RingRead::Lost;
        }
        let mut changes = Vec::new();
        let mut bytes = 0;
        for change in self.changes.range((cursor - self.start) as usize..) {
            changes.push(change.clone());
            bytes += change.size();
            if bytes >= budget {
                break;
            }
        }
        if changes.is_empty() {
            return RingRead::Empty;
        }
        let next = cursor + changes.len() as u64;
        RingRead::Changes(changes, next)
    }

    /// Takes back the changes above a revision.
    pub(crate) fn undo(&self, map: &mut Map, revision: u64) {
        for change in self.changes.iter().rev().take_while(|change| change.revision > revision) {
            match &change.old {
                Some(item) => map.insert(change.key.clone(), item.clone()),
                None => map.remove(&*change.key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, size: usize) -> Arc<Change> {
        let item = Arc::new(Item::new("a/b", revision, Bytes::from(vec![0; size])));
        Arc::new(Change::new(revision, None, Some(item)).expect("a change"))
    }

    #[test]
    fn drops_the_oldest_changes_and_reports_it() {
        let mut ring = Ring::new(5, 3000);
        for revision in [6, 8, 9] {
            ring.push(change(revision, 1000));
        }
        assert_eq!(ring.floor(), 6, "the change of revision 6 had to go");
        assert_eq!(ring.cursor(5), None);
        let cursor = ring.cursor(6).expect("6 can still be resumed");
        let RingRead::Changes(changes, next) = ring.read(cursor, usize::MAX) else { panic!("two changes") };
        assert_eq!(changes.iter().map(|change| change.revision).collect::<Vec<_>>(), [8, 9]);
        assert!(matches!(ring.read(next, usize::MAX), RingRead::Empty));
        assert!(matches!(ring.read(0, usize::MAX), RingRead::Lost));
    }

    #[test]
    fn frames_are_built_once() {
        let change = change(1, 1);
        let format = Format { event: "ADDED", encoding: 0 };
        assert_eq!(change.frame(format, || Bytes::from("x")), "x");
        assert_eq!(change.frame(format, || unreachable!("it is kept")), "x");
    }
}
