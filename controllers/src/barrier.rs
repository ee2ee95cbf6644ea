//! Read your writes: what the work on a key has written is remembered until the informers show it.

use std::collections::HashMap;

use client::written::Written;
use client::{Informers, Key};
use stdx::sync::Mutex;

/// Above this, what is shown already is thrown out: its key may never come again.
const MANY: usize = 1000;

#[derive(Default)]
pub struct Barrier(Mutex<HashMap<Key, Vec<Written>>>);

impl Barrier {
    /// What has to be seen before a key is worked on.
    pub fn take(&self, key: &str) -> Vec<Written> {
        self.0.lock().remove(key).unwrap_or_default()
    }

    pub fn keep(&self, key: &Key, written: Vec<Written>, informers: &Informers) {
        let not_shown = |written: &Written| !informers.show(written);
        let written: Vec<Written> = written.into_iter().filter(not_shown).collect();
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
