//! What an event says; whom it is about, the caller knows.

use std::collections::HashMap;

use api::Tree;
use client::{Key, Recorder};
use stdx::sync::Mutex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Note {
        Note { is_warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Note {
        Note { is_warning: true, reason, message: message.into() }
    }

    pub fn tell(&self, recorder: &Recorder, object: &Tree) {
        match self.is_warning {
            true => recorder.warning(object, self.reason, &self.message),
            false => recorder.normal(object, self.reason, &self.message),
        }
    }
}

/// What was said last of an object, so that it is said once for as long as it holds.
#[derive(Default)]
pub struct Told(Mutex<HashMap<Key, Vec<Note>>>);

impl Told {
    pub fn tell(&self, recorder: &Recorder, object: &Tree, note: Note) {
        self.tell_all(recorder, object, vec![note]);
    }

    /// Tells those that were not told the last time.
    pub fn tell_all(&self, recorder: &Recorder, object: &Tree, notes: Vec<Note>) {
        let mut told = self.0.lock();
        let key = client::key_of(object);
        let before = told.get(&key).map_or(&[][..], Vec::as_slice);
        notes.iter().filter(|note| !before.contains(note)).for_each(|note| note.tell(recorder, object));
        match notes.is_empty() {
            true => told.remove(&key),
            false => told.insert(key, notes),
        };
    }

    pub fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}
