//! A controller's own recent writes, whose watch events need no reconcile.

use std::collections::HashMap;

use api::Tree;
use client::{Change, Key, key_of, revision_of};
use stdx::sync::{Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct OwnWrites(Mutex<HashMap<Key, LastWrite>>);

#[derive(Clone, Copy, PartialEq)]
enum LastWrite {
    Written(u64),
    Deleted,
}

impl OwnWrites {
    /// Records the object in a response.
    pub(crate) fn record(&self, object: &Tree) {
        if let Some(revision) = revision_of(object) {
            self.entries().insert(key_of(object), LastWrite::Written(revision));
        }
    }

    pub(crate) fn record_deleted(&self, object: &Tree) {
        self.entries().insert(key_of(object), LastWrite::Deleted);
    }

    /// Whether a change is an own write. An event that arrives before the response is treated as foreign.
    pub(crate) fn is_own(&self, change: &Change) -> bool {
        let mut known = self.entries();
        match &change.new {
            None => known.remove(&change.key) == Some(LastWrite::Deleted),
            Some(new) => {
                let last = known.get(&change.key).copied();
                last.is_some() && last == revision_of(new).map(LastWrite::Written)
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Key, LastWrite>> {
        self.0.lock()
    }
}
