//! Maintains the Endpoints of services with a selector.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use client::{Client, DeleteOptions, Recorder, Resource, Result, Selection, Store, split};
use stdx::sync::{Mutex, MutexGuard};

use crate::support::endpoint_pods::{self, EndpointPods, SERVICES, Triggers};
use crate::support::own_writes::OwnWrites;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::Plan;

const RESOURCE: Resource = Resource::core("endpoints");
pub(crate) const ENDPOINTS: Selection = Selection::all(RESOURCE);

struct Controller {
    services: Arc<Store>,
    pods: Arc<EndpointPods>,
    endpoints: Arc<Store>,
    client: Client,
    recorder: Recorder,
    own: Arc<OwnWrites>,
    triggers: Mutex<BTreeMap<String, Triggers>>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let batch = context.options.endpoint_updates_batch_period;
    let pods = endpoint_pods::follow(setup, context, batch);
    let own = Arc::new(OwnWrites::default());
    let (queue, known) = (context.queue.clone(), own.clone());
    // Our own objects are corrected and deleted with their service; user-created ones are not changed.
    setup.informer(ENDPOINTS).on_change(move |change| {
        let mut seen = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
        if !known.is_own(change) && seen.any(plan::is_ours) {
            endpoint_pods::add(&queue, change.key.clone(), batch);
        }
    });
    Some(Box::new(Controller {
        services: setup.informer(SERVICES).store().clone(),
        pods,
        endpoints: setup.informer(ENDPOINTS).store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("endpoint-controller"),
        own,
        triggers: Mutex::default(),
    }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let there = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            self.triggers().remove(key);
            return self.clean_up(there.as_deref()).await;
        };
        if !endpoint_pods::selects(&service) {
            return Ok(Outcome::Done);
        }
        let pods = self.pods.pods_of(&service);
        let trigger = self.triggers().entry(key.to_string()).or_default().follow(&service, &pods);
        let (namespace, name) = split(key);
        let result = match plan::plan(&service, &pods, there.as_deref(), trigger.as_deref()) {
            Plan::Keep => return Ok(Outcome::Done),
            Plan::Create(object) => (self.client.create(RESOURCE, namespace, &object).await, object, true),
            Plan::Update(object) => (self.client.update(RESOURCE, namespace, name, &object).await, object, false),
        };
        match result {
            (Ok(written), ..) => self.own.record(&written),
            // A terminating namespace rejects creates.
            (Err(error), _, true) if error.is_terminating() => {}
            (Err(error), object, is_new) => {
                self.record_failure(&object, key, is_new, &error);
                return Err(error);
            }
        }
        Ok(Outcome::Done)
    }

    async fn clean_up(&self, there: Option<&Tree>) -> Result<Outcome> {
        let Some(there) = there else { return Ok(Outcome::Done) };
        let (namespace, name) = (there.str("metadata.namespace"), there.str("metadata.name"));
        match self.client.delete(RESOURCE, namespace, name, DeleteOptions::of(there)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                self.own.record_deleted(there);
                Ok(Outcome::Done)
            }
        }
    }

    fn record_failure(&self, object: &Tree, key: &str, is_new: bool, error: &client::Error) {
        if error.is_conflict() {
            return;
        }
        let (reason, text) = match is_new {
            true => ("FailedToCreateEndpoint", format!("Failed to create endpoint for service {key}: {error}")),
            false => ("FailedToUpdateEndpoint", format!("Failed to update endpoint {key}: {error}")),
        };
        self.recorder.warning(object, reason, text);
    }

    fn triggers(&self) -> MutexGuard<'_, BTreeMap<String, Triggers>> {
        self.triggers.lock()
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
