//! What an event says; whom it is about, the caller knows.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::Tree;
use client::{Key, Recorder};

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
pub struct Told(Mutex<HashMap<Key, Note>>);

impl Told {
    pub fn tell(&self, recorder: &Recorder, object: &Tree, note: Note) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = client::key_of(object);
        if told.get(&key) != Some(&note) {
            note.tell(recorder, object);
            told.insert(key, note);
        }
    }

    pub fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
