//! Tells users what happened to an object, by Events. Nobody waits for it: what cannot be written is
//! dropped and counted.

mod correlate;

use std::sync::Arc;

use api::{Tree, tree};
use tokio::sync::mpsc;

use crate::{Client, Clock, Metrics, Patch, Resource};
use correlate::{Correlator, Write};

const EVENTS: Resource = Resource::core("events");
/// As many wait to be written; more are dropped.
const WAITING: usize = 1000;

/// What happened, and to what.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    component: &'static str,
    /// An ObjectReference.
    object: Tree,
    kind: &'static str,
    reason: String,
    message: String,
    at: api::time::Timestamp,
}

/// Writes the events of a process, one after the other.
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
        Recorder { events: self.clone(), client, component }
    }
}

#[derive(Clone)]
pub struct Recorder {
    events: Events,
    client: Client,
    component: &'static str,
}

impl Recorder {
    /// The same under another name: upstream's components are not always called as their controllers.
    pub fn named(&self, component: &'static str) -> Recorder {
        Recorder { component, ..self.clone() }
    }

    pub fn normal(&self, object: &Tree, reason: &str, message: impl Into<String>) {
        self.record(object, "Normal", reason, message.into());
    }

    pub fn warning(&self, object: &Tree, reason: &str, message: impl Into<String>) {
        self.record(object, "Warning", reason, message.into());
    }

    fn record(&self, object: &Tree, kind: &'static str, reason: &str, message: String) {
        let event = Event {
            component: self.component,
            object: reference(object),
            kind,
            reason: reason.to_string(),
            message,
            at: self.events.clock.now(),
        };
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
    while let Some((client, event)) = receiver.recv().await {
        let Some((key, write)) = correlator.take(event) else {
            metrics.event(false);
            continue;
        };
        let result = carry_out(&client, &write).await;
        metrics.event(result.is_ok());
        if let Err(error) = result {
            tracing::debug!(%error, "an event is dropped");
            correlator.forget(&key);
        }
    }
}

async fn carry_out(client: &Client, write: &Write) -> crate::Result<()> {
    let object = &write.object;
    let (namespace, name) = (object.str("metadata.namespace"), object.str("metadata.name"));
    if let Some(patch) = &write.patch {
        match client.patch(EVENTS, namespace, name, "", Patch::Strategic(patch)).await {
            // It has expired: it is made anew, with the count that it had.
            Err(error) if error.is_not_found() => {}
            result => return result.map(drop),
        }
    }
    client.create(EVENTS, namespace, object).await.map(drop)
}
