//! The current entry of every key: a persistent ordered set. Copies are free, and a reader keeps one revision without a
//! lock.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use crate::Entry;

/// Cheap to clone: copies share all nodes until one is changed.
#[derive(Clone, Default)]
pub struct Entries(imbl::OrdSet<KeyedEntry>);

impl Entries {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.0.get(key).map(|found| &found.0)
    }

    /// Replaces the entry with the same key, and returns the old one.
    pub fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.0.insert(KeyedEntry(entry)).map(|old| old.0)
    }

    /// Removes and returns the entry of a key.
    pub fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        self.0.remove(key).map(|old| old.0)
    }

    /// All entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.iter().map(|found| &found.0)
    }

    /// Entries from `start` (inclusive) to `end` (exclusive; empty for no end).
    pub fn range(&self, start: &str, end: &str) -> impl Iterator<Item = &Arc<Entry>> {
        let upper = match end {
            "" => Bound::Unbounded,
            // A reversed range would panic in the tree: it is empty instead.
            end => Bound::Excluded(end.max(start)),
        };
        let lower = Bound::Included(start);
        let empty = !end.is_empty() && end <= start;
        let found = (!empty).then(|| self.0.range::<_, str>((lower, upper)));
        found.into_iter().flatten().map(|found| &found.0)
    }
}

/// Whether a key is in `[start, end)`; an empty end means no end.
pub(crate) fn contains(start: &str, end: &str, key: &str) -> bool {
    start <= key && (end.is_empty() || key < end)
}

/// An entry ordered by its key, which is stored once. Copying a tree node only increments reference counts.
#[derive(Clone)]
struct KeyedEntry(Arc<Entry>);

impl Borrow<str> for KeyedEntry {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for KeyedEntry {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for KeyedEntry {}

impl PartialOrd for KeyedEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyedEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}
