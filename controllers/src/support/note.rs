//! The content of an event.

use std::collections::HashMap;

use api::Tree;
use client::{Key, Recorder};
use stdx::sync::Mutex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Note {
        Note { is_warning: false, reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Note {
        Note { is_warning: true, reason, message: message.into() }
    }

    pub(crate) fn record(&self, recorder: &Recorder, object: &Tree) {
        match self.is_warning {
            true => recorder.warning(object, self.reason, &self.message),
            false => recorder.normal(object, self.reason, &self.message),
        }
    }
}

/// Remembers the last events of each object, so that an event is recorded once while its cause lasts.
#[derive(Default)]
pub(crate) struct NoteRecorder(Mutex<HashMap<Key, Vec<Note>>>);

impl NoteRecorder {
    pub(crate) fn record(&self, recorder: &Recorder, object: &Tree, note: Note) {
        self.record_all(recorder, object, vec![note]);
    }

    /// Records the events that were not recorded the last time.
    pub(crate) fn record_all(&self, recorder: &Recorder, object: &Tree, notes: Vec<Note>) {
        let mut recorded = self.0.lock();
        let key = client::key_of(object);
        let before = recorded.get(&key).map_or(&[][..], Vec::as_slice);
        notes.iter().filter(|note| !before.contains(note)).for_each(|note| note.record(recorder, object));
        match notes.is_empty() {
            true => recorded.remove(&key),
            false => recorded.insert(key, notes),
        };
    }

    pub(crate) fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}
