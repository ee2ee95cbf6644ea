//! Tells users what happened to an object, by Events. Nobody waits for it, or not for long: what cannot be written
//! is dropped and counted.

mod correlate;

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::{Client, Clock, Metrics, Patch, Resource};
use correlate::{Correlator, Write};

const EVENTS: Resource = Resource::core("events");
const ACTED_EVENTS: Resource = Resource::new("events.k8s.io", "v1", "events");
/// As many wait to be written; more are dropped.
const WAITING: usize = 1000;
/// So many are written at once: they share the waits for the store. With the bindings of a scheduler they stay below the
/// seats that priority and fairness gives to its flow.
const MOST_UNDER_WAY: usize = 32;
/// So long waits who would rather wait than have an event dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happened, and to what.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    component: &'static str,
    /// Where the component runs; empty where that does not matter.
    host: Arc<str>,
    /// An ObjectReference.
    object: Tree,
    kind: &'static str,
    reason: String,
    message: String,
    at: api::time::Timestamp,
    /// What was done; None in the older form, which does not say it.
    acted: Option<Acted>,
}

/// What the newer form of events, events.k8s.io/v1, says besides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Acted {
    action: &'static str,
    /// An ObjectReference.
    related: Option<Tree>,
    /// Which of those who report under the name.
    instance: Arc<str>,
}

/// What happened, in the newer form.
pub struct Note<'a> {
    pub reason: &'a str,
    /// What was done, or tried.
    pub action: &'static str,
    /// Another object that it has to do with.
    pub related: Option<&'a Tree>,
    pub text: String,
}

/// Writes the events of a process, those that are new beside each other.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<(Client, Event)>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Events {
    /// The writer runs until the last of those who record is gone.
    pub fn start(clock: Arc<dyn Clock>, metrics: Metrics) -> Events {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(write_all(receiver, metrics.clone()));
        Events { sender, clock, metrics }
    }

    /// One who records under a name, with the rights of a client.
    pub fn recorder(&self, client: Client, component: &'static str) -> Recorder {
        Recorder { events: self.clone(), client, component, host: "".into(), instance: "".into() }
    }
}

#[derive(Clone)]
pub struct Recorder {
    events: Events,
    client: Client,
    component: &'static str,
    host: Arc<str>,
    instance: Arc<str>,
}

impl Recorder {
    /// The same on a host, by which those of one name are told apart.
    pub fn on(self, host: &str) -> Recorder {
        Recorder { host: host.into(), instance: format!("{}-{host}", self.component).into(), ..self }
    }

    /// The same under another name: upstream's components are not always called as their controllers.
    pub fn named(&self, component: &'static str) -> Recorder {
        Recorder { component, ..self.clone() }
    }

    pub fn normal(&self, object: &Tree, reason: &str, message: impl Into<String>) {
        self.record(object, "Normal", reason, message.into(), None);
    }

    pub fn warning(&self, object: &Tree, reason: &str, message: impl Into<String>) {
        self.record(object, "Warning", reason, message.into(), None);
    }

    pub fn note_normal(&self, object: &Tree, note: Note<'_>) {
        self.note(object, "Normal", note);
    }

    pub fn note_warning(&self, object: &Tree, note: Note<'_>) {
        self.note(object, "Warning", note);
    }

    /// The same where so much happens at once that there may be no room: a little time is given to make some.
    pub async fn note_normal_in_turn(&self, object: &Tree, note: Note<'_>) {
        let event = self.noted(object, "Normal", note);
        let sent = self.events.sender.send_timeout((self.client.clone(), event), PATIENCE).await;
        if sent.is_err() {
            self.events.metrics.event(false);
        }
    }

    fn note(&self, object: &Tree, kind: &'static str, note: Note<'_>) {
        self.send(self.noted(object, kind, note));
    }

    fn noted(&self, object: &Tree, kind: &'static str, note: Note<'_>) -> Event {
        let related = note.related.map(reference);
        let acted = Acted { action: note.action, related, instance: self.instance.clone() };
        self.event(object, kind, note.reason, note.text, Some(acted))
    }

    fn record(&self, object: &Tree, kind: &'static str, reason: &str, message: String, acted: Option<Acted>) {
        self.send(self.event(object, kind, reason, message, acted));
    }

    fn event(&self, object: &Tree, kind: &'static str, reason: &str, message: String, acted: Option<Acted>) -> Event {
        Event {
            component: self.component,
            host: self.host.clone(),
            object: reference(object),
            kind,
            reason: reason.to_string(),
            message,
            at: self.events.clock.now(),
            acted,
        }
    }

    fn send(&self, event: Event) {
        if self.events.sender.try_send((self.client.clone(), event)).is_err() {
            self.events.metrics.event(false);
        }
    }
}

/// What is there of an object to find it again. One that is made up for the purpose may have no version.
fn reference(object: &Tree) -> Tree {
    let mut reference = tree! {};
    let fields = [
        ("kind", "kind"),
        ("apiVersion", "apiVersion"),
        ("namespace", "metadata.namespace"),
        ("name", "metadata.name"),
        ("uid", "metadata.uid"),
        // A part of it, where whoever tells of it has put that there.
        ("fieldPath", "fieldPath"),
        ("resourceVersion", "metadata.resourceVersion"),
    ];
    for (field, path) in fields {
        let value = object.str(path);
        if !value.is_empty() {
            reference.set(field, value);
        }
    }
    reference
}

async fn write_all(mut receiver: mpsc::Receiver<(Client, Event)>, metrics: Metrics) {
    let mut correlator = Correlator::default();
    let mut under_way = JoinSet::new();
    loop {
        let next = tokio::select! {
            biased;
            Some(done) = under_way.join_next() => {
                written(done, &mut correlator, &metrics);
                continue;
            }
            next = receiver.recv(), if under_way.len() < MOST_UNDER_WAY => next,
        };
        let Some((client, event)) = next else { break };
        let Some((key, write)) = correlator.take(event) else {
            metrics.event(false);
            continue;
        };
        // What is changed has to be there, and changes come in order.
        while write.patch.is_some() && !under_way.is_empty() {
            if let Some(done) = under_way.join_next().await {
                written(done, &mut correlator, &metrics);
            }
        }
        under_way.spawn(async move { (key, write_event(&client, &write).await) });
    }
    while under_way.join_next().await.is_some() {}
}

/// An event is written, or never will be.
fn written(done: Result<(String, crate::Result<()>), JoinError>, correlator: &mut Correlator, metrics: &Metrics) {
    let Ok((key, result)) = done else { return };
    metrics.event(result.is_ok());
    if let Err(error) = result {
        tracing::debug!(%error, "failed to write event, dropping it");
        correlator.forget(&key);
    }
}

async fn write_event(client: &Client, write: &Write) -> crate::Result<()> {
    let object = &write.object;
    let (namespace, name) = (object.str("metadata.namespace"), object.str("metadata.name"));
    let resource = if object.has("action") { ACTED_EVENTS } else { EVENTS };
    if let Some(patch) = &write.patch {
        match client.patch(resource, namespace, name, "", Patch::Strategic(patch)).await {
            // It has expired: it is made anew, with the count that it had.
            Err(error) if error.is_not_found() => {}
            result => return result.map(drop),
        }
    }
    client.create_unread(resource, namespace, object).await
}

#[cfg(test)]
mod tests;
