//! Read-your-writes: records the writes of a key's reconcile until the informers have observed them.

use std::collections::HashMap;

use client::writes::WriteRecord;
use client::{Informers, Key};
use stdx::sync::Mutex;

/// Above this number of keys, entries that the informers have already observed are dropped: their keys may never be
/// queued again.
const MANY: usize = 1000;

#[derive(Default)]
pub(crate) struct Barrier(Mutex<HashMap<Key, Vec<WriteRecord>>>);

impl Barrier {
    /// The writes that the informers must observe before the key is reconciled again.
    pub(crate) fn take(&self, key: &str) -> Vec<WriteRecord> {
        self.0.lock().remove(key).unwrap_or_default()
    }

    pub(crate) fn keep(&self, key: &Key, written: Vec<WriteRecord>, informers: &Informers) {
        let not_shown = |written: &WriteRecord| !informers.have_observed(written);
        let written: Vec<WriteRecord> = written.into_iter().filter(not_shown).collect();
        if written.is_empty() {
            return;
        }
        let mut kept = self.0.lock();
        if kept.len() >= MANY {
            kept.retain(|_, written| written.iter().any(not_shown));
        }
        kept.insert(key.clone(), written);
    }
}
