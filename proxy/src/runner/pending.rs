//! Changes that were observed and that are not applied yet: the newest state of each object, as far as the proxy needs
//! it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::Tree;
use api::time::Timestamp;
use client::{Change, ObjectChange, ObservedObject, Sink};
use network::cidr::IpNet;
use stdx::sync::Mutex;
use tokio::sync::{Notify, watch};

use super::Shared;
use crate::model::{Service, ServiceKey, Slice, has_left};

/// When the change that an EndpointSlice reflects was observed.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// More times than this are not measured in one batch.
const MOST_TRIGGERS: usize = 1000;

/// A batch of changes.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) services: BTreeMap<ServiceKey, Option<Service>>,
    pub(super) slices: BTreeMap<ServiceKey, Option<Slice>>,
    pub(super) node: Option<ObservedObject>,
    /// All ranges, if one has changed.
    pub(super) service_cidrs: Option<Vec<IpNet>>,
    /// The newest revision of a slice in the batch.
    pub(super) revision: u64,
    /// Whether an endpoint has come and left, which kubelets wait for and which is not applied.
    pub(super) endpoint_left: bool,
    pub(super) triggers: Vec<Timestamp>,
}

/// The changes of all resources.
#[derive(Default)]
pub(super) struct Pending {
    batch: Mutex<Batch>,
    cidrs: Mutex<BTreeMap<ServiceKey, Vec<IpNet>>>,
    /// The last trigger of each slice that has one.
    triggers: Mutex<HashMap<ServiceKey, Timestamp>>,
    changed: Notify,
    services_listed: ListRevision,
    slices_listed: ListRevision,
}

/// The revision of the last complete list; None before the first one.
struct ListRevision(watch::Sender<Option<u64>>);

impl Default for ListRevision {
    fn default() -> ListRevision {
        ListRevision(watch::Sender::new(None))
    }
}

impl ListRevision {
    async fn first(&self) -> u64 {
        let mut revision = self.0.subscribe();
        // The sender is in the same struct, so that waiting cannot fail.
        revision.wait_for(Option::is_some).await.ok().and_then(|revision| *revision).unwrap_or(0)
    }
}

impl Pending {
    fn service(&self, observed: &ObjectChange<'_>) {
        let service = observed.object.and_then(Service::read);
        self.batch.lock().services.insert(observed.key.clone(), service);
        self.changed.notify_one();
    }

    fn slice(&self, observed: &ObjectChange<'_>, node: &str) {
        let slice = observed.object.and_then(|slice| Slice::read(slice, node));
        let trigger = self.trigger(observed);
        let mut batch = self.batch.lock();
        batch.revision = batch.revision.max(observed.revision.unwrap_or(0));
        if batch.triggers.len() < MOST_TRIGGERS {
            batch.triggers.extend(trigger);
        }
        let before = batch.slices.get(observed.key).and_then(Option::as_ref);
        let left = has_left(before, slice.as_ref());
        batch.endpoint_left |= left;
        batch.slices.insert(observed.key.clone(), slice);
        drop(batch);
        self.changed.notify_one();
    }

    /// The time of a change that was triggered since the slice was observed last.
    fn trigger(&self, observed: &ObjectChange<'_>) -> Option<Timestamp> {
        let text = |object: &Tree| object.map("metadata.annotations").str(TRIGGER_ANNOTATION).to_string();
        let new = observed.object.and_then(|object| api::time::parse_micro(&text(object)).ok());
        let mut triggers = self.triggers.lock();
        let old = match new {
            Some(new) => triggers.insert(observed.key.clone(), new),
            None => triggers.remove(observed.key),
        };
        new.filter(|new| old.is_some_and(|old| old != *new))
    }

    pub(super) fn node(&self, change: &Change) {
        if let Some(node) = &change.new {
            self.batch.lock().node = Some(node.clone());
            self.changed.notify_one();
        }
    }

    pub(super) fn service_cidr(&self, change: &Change) {
        let mut cidrs = self.cidrs.lock();
        match change.new.as_deref() {
            Some(new) => {
                let ranges = new.list("spec.cidrs").iter().filter_map(Tree::as_str);
                cidrs.insert(change.key.clone(), ranges.filter_map(|text| text.parse().ok()).collect());
            }
            None => drop(cidrs.remove(&change.key)),
        }
        self.batch.lock().service_cidrs = Some(cidrs.values().flatten().copied().collect());
        self.changed.notify_one();
    }

    /// Waits until the first lists are complete, and returns the revision of the slices. Nothing is applied before: a
    /// partial list would remove rules of a previous proxy.
    pub(super) async fn first_lists(&self) -> u64 {
        self.services_listed.first().await;
        self.slices_listed.first().await
    }

    /// Waits for a change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn take(&self) -> Batch {
        std::mem::take(&mut *self.batch.lock())
    }

    /// The numbers of Services and slices.
    pub(super) fn counts(&self) -> (usize, usize) {
        let batch = self.batch.lock();
        (batch.services.len(), batch.slices.len())
    }
}

/// Puts Services into the pending changes.
pub(super) struct ServiceSink(pub(super) Arc<Shared>);

impl Sink for ServiceSink {
    fn put(&mut self, observed: ObjectChange<'_>) {
        self.0.pending.service(&observed);
        self.0.health.queued();
    }

    fn listed(&mut self, revision: u64) {
        self.0.pending.services_listed.0.send_replace(Some(revision));
    }
}

/// Puts EndpointSlices into the pending changes.
pub(super) struct SliceSink(pub(super) Arc<Shared>);

impl Sink for SliceSink {
    fn put(&mut self, observed: ObjectChange<'_>) {
        self.0.pending.slice(&observed, &self.0.config.node_name);
        self.0.health.queued();
    }

    fn listed(&mut self, revision: u64) {
        self.0.pending.slices_listed.0.send_replace(Some(revision));
    }
}
