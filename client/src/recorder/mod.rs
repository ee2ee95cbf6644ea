//! Records Events about objects. Callers do not wait, or not for long: events that cannot be written are dropped and
//! counted.

mod correlate;

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::{Client, Metrics, Patch, Resource};
use correlate::{Correlator, Write};
use stdx::clock::Clock;

const EVENTS: Resource = Resource::core("events");
const ACTED_EVENTS: Resource = Resource::new("events.k8s.io", "v1", "events");
/// The queue length; further events are dropped.
const WAITING: usize = 1000;
/// The maximum number of concurrent writes, which share disk syncs. Together with a scheduler's bindings they stay
/// below the seats of its priority and fairness flow.
const MOST_UNDER_WAY: usize = 32;
/// How long a caller waits for a free slot of the queue before an event is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// An event and the object it is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    component: &'static str,
    /// The component's host; empty if irrelevant.
    host: Arc<str>,
    /// An ObjectReference.
    object: Tree,
    kind: &'static str,
    reason: String,
    message: String,
    at: api::time::Timestamp,
    /// The action; None for core/v1 events.
    action_fields: Option<EventAction>,
}

/// The additional fields of events.k8s.io/v1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EventAction {
    action: &'static str,
    /// An ObjectReference.
    related: Option<Tree>,
    /// The reporting instance.
    instance: Arc<str>,
}

/// The content of an events.k8s.io/v1 event.
pub struct EventDetails<'a> {
    pub reason: &'a str,
    /// The action taken or attempted.
    pub action: &'static str,
    /// Another object involved.
    pub related: Option<&'a Tree>,
    pub text: String,
}

/// Writes the events of a process, new ones concurrently.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<(Client, Event)>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Events {
    /// The writer runs until the last recorder is dropped.
    pub fn start(clock: Arc<dyn Clock>, metrics: Metrics) -> Events {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(write_all(receiver, metrics.clone()));
        Events { sender, clock, metrics }
    }

    /// A recorder for a component, with the permissions of a client.
    pub fn recorder(&self, client: Client, component: &'static str) -> Recorder {
        Recorder { events: self.clone(), client, component, host: "".into(), instance: "".into() }
    }
}

/// Records events of one component.
#[derive(Clone)]
pub struct Recorder {
    events: Events,
    client: Client,
    component: &'static str,
    host: Arc<str>,
    instance: Arc<str>,
}

impl Recorder {
    /// The same recorder on a host, which identifies the instance.
    pub fn on(self, host: &str) -> Recorder {
        Recorder { host: host.into(), instance: format!("{}-{host}", self.component).into(), ..self }
    }

    /// The same recorder with another component name: upstream's event sources are not always named like their
    /// controllers.
    pub fn named(&self, component: &'static str) -> Recorder {
        Recorder { component, ..self.clone() }
    }

    /// Records a Normal event.
    pub fn normal(&self, object: &Tree, reason: &str, message: impl Into<String>) {
        self.record(object, "Normal", reason, message.into(), None);
    }

    /// Records a Warning event.
    pub fn warning(&self, object: &Tree, reason: &str, message: impl Into<String>) {
        self.record(object, "Warning", reason, message.into(), None);
    }

    /// Records a Normal event with action and related object.
    pub fn record_normal(&self, object: &Tree, note: EventDetails<'_>) {
        self.record_details(object, "Normal", note);
    }

    /// Records a Warning event with action and related object.
    pub fn record_warning(&self, object: &Tree, note: EventDetails<'_>) {
        self.record_details(object, "Warning", note);
    }

    /// Waits a limited time for a free slot of the queue, for callers with bursts of events.
    pub async fn queue_normal_event(&self, object: &Tree, note: EventDetails<'_>) {
        let event = self.event_from_details(object, "Normal", note);
        let sent = self.events.sender.send_timeout((self.client.clone(), event), PATIENCE).await;
        if sent.is_err() {
            self.events.metrics.event(false);
        }
    }

    fn record_details(&self, object: &Tree, kind: &'static str, note: EventDetails<'_>) {
        self.send(self.event_from_details(object, kind, note));
    }

    fn event_from_details(&self, object: &Tree, kind: &'static str, note: EventDetails<'_>) -> Event {
        let related = note.related.map(reference);
        let action_fields = EventAction { action: note.action, related, instance: self.instance.clone() };
        self.event(object, kind, note.reason, note.text, Some(action_fields))
    }

    fn record(
        &self,
        object: &Tree,
        kind: &'static str,
        reason: &str,
        message: String,
        action_fields: Option<EventAction>,
    ) {
        self.send(self.event(object, kind, reason, message, action_fields));
    }

    fn event(
        &self,
        object: &Tree,
        kind: &'static str,
        reason: &str,
        message: String,
        action_fields: Option<EventAction>,
    ) -> Event {
        Event {
            component: self.component,
            host: self.host.clone(),
            object: reference(object),
            kind,
            reason: reason.to_string(),
            message,
            at: self.events.clock.now(),
            action_fields,
        }
    }

    fn send(&self, event: Event) {
        if self.events.sender.try_send((self.client.clone(), event)).is_err() {
            self.events.metrics.event(false);
        }
    }
}

/// An ObjectReference. Constructed objects may have no version.
fn reference(object: &Tree) -> Tree {
    let mut reference = tree! {};
    let fields = [
        ("kind", "kind"),
        ("apiVersion", "apiVersion"),
        ("namespace", "metadata.namespace"),
        ("name", "metadata.name"),
        ("uid", "metadata.uid"),
        // Set by callers that report on a part of the object.
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
        // A patched event must exist, and patches are ordered.
        while write.patch.is_some() && !under_way.is_empty() {
            if let Some(done) = under_way.join_next().await {
                written(done, &mut correlator, &metrics);
            }
        }
        under_way.spawn(async move { (key, write_event(&client, &write).await) });
    }
    while under_way.join_next().await.is_some() {}
}

/// Handles a finished write.
fn written(done: Result<(String, crate::Result<()>), JoinError>, correlator: &mut Correlator, metrics: &Metrics) {
    let Ok((key, result)) = done else { return };
    metrics.event(result.is_ok());
    if let Err(error) = result {
        tracing::debug!(%error, "failed to write event, dropping it");
        correlator.remove(&key);
    }
}

async fn write_event(client: &Client, write: &Write) -> crate::Result<()> {
    let object = &write.object;
    let (namespace, name) = (object.str("metadata.namespace"), object.str("metadata.name"));
    let resource = if object.has("action") { ACTED_EVENTS } else { EVENTS };
    if let Some(patch) = &write.patch {
        match client.patch(resource, namespace, name, "", Patch::Strategic(patch)).await {
            // The event has expired: it is created again, with its count.
            Err(error) if error.is_not_found() => {}
            result => return result.map(drop),
        }
    }
    client.create_unread(resource, namespace, object).await
}

#[cfg(test)]
mod tests;
