//! The content of an event.

use std::collections::HashMap;

use api::Tree;
use client::{Key, Recorder};
use stdx::sync::Mutex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventMessage {
    is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl EventMessage {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> EventMessage {
        EventMessage { is_warning: false, reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> EventMessage {
        EventMessage { is_warning: true, reason, message: message.into() }
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
pub(crate) struct EventDeduplicator(Mutex<HashMap<Key, Vec<EventMessage>>>);

impl EventDeduplicator {
    pub(crate) fn record(&self, recorder: &Recorder, object: &Tree, event_message: EventMessage) {
        self.record_all(recorder, object, vec![event_message]);
    }

    /// Records the events that were not recorded the last time.
    pub(crate) fn record_all(&self, recorder: &Recorder, object: &Tree, events: Vec<EventMessage>) {
        let mut recorded = self.0.lock();
        let key = client::key_of(object);
        let before = recorded.get(&key).map_or(&[][..], Vec::as_slice);
        events
            .iter()
            .filter(|event_message| !before.contains(event_message))
            .for_each(|event_message| event_message.record(recorder, object));
        match events.is_empty() {
            true => recorded.remove(&key),
            false => recorded.insert(key, events),
        };
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.lock().remove(key);
    }
}
