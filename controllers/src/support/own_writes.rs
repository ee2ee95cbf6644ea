//! A controller's own recent writes, whose watch events need no reconcile.

use std::collections::HashMap;

use api::Tree;
use client::{Change, Key, key_of, revision_of};
use stdx::sync::{Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct OwnWrites(Mutex<HashMap<Key, Last>>);

#[derive(Clone, Copy, PartialEq)]
enum Last {
    Written(u64),
    Deleted,
}

impl OwnWrites {
    /// Records the object in a response.
    pub(crate) fn note(&self, object: &Tree) {
        if let Some(revision) = revision_of(object) {
            self.known().insert(key_of(object), Last::Written(revision));
        }
    }

    pub(crate) fn note_deleted(&self, object: &Tree) {
        self.known().insert(key_of(object), Last::Deleted);
    }

    /// Whether a change is an own write. An event that arrives before the response is treated as foreign.
    pub(crate) fn is_own(&self, change: &Change) -> bool {
        let mut known = self.known();
        match &change.new {
            None => known.remove(&change.key) == Some(Last::Deleted),
            Some(new) => {
                let last = known.get(&change.key).copied();
                last.is_some() && last == revision_of(new).map(Last::Written)
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Last>> {
        self.0.lock()
    }
}
