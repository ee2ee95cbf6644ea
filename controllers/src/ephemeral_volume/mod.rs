//! Creates the claims of generic ephemeral volumes.

pub(crate) mod plan;

use std::sync::Arc;

use api::Tree;
use client::{Client, Recorder, Result, Store, key, split};

use crate::support::PODS;
use crate::support::event_message::EventDeduplicator;
use crate::support::volumes::{BY_CLAIM, CLAIMS};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    pods: Arc<Store>,
    claims: Arc<Store>,
    client: Client,
    recorder: Recorder,
    event_recorder: EventDeduplicator,
    metrics: client::Metrics,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let pods = setup.informer(PODS);
    pods.index_by(BY_CLAIM);
    let queue = context.queue.clone();
    // The volumes of a pod are immutable.
    pods.on_change(move |change| match (&change.old, change.new.as_deref()) {
        (None, Some(pod)) if has_own(pod) => queue.add(change.key.clone()),
        (Some(pod), None) if has_own(pod) => queue.add(change.key.clone()),
        _ => {}
    });
    let (store, queue) = (pods.store().clone(), context.queue.clone());
    let claims = setup.informer(CLAIMS);
    // A claim that is deleted while its pod exists is created again.
    claims.on_change(move |change| {
        if change.new.is_none() {
            store.find_keys(BY_CLAIM, &change.key).into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        pods: pods.store().clone(),
        claims: claims.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("ephemeral_volume"),
        event_recorder: EventDeduplicator::default(),
        metrics: context.metrics.clone(),
    }))
}

fn has_own(pod: &Tree) -> bool {
    pod.list("spec.volumes").iter().any(|volume| volume.has("ephemeral"))
}

impl Controller {
    async fn sync(&self, pod_key: &str) -> Result<Outcome> {
        let Some(pod) = self.pods.get(pod_key) else {
            self.event_recorder.remove(pod_key);
            return Ok(Outcome::Done);
        };
        let namespace = split(pod_key).0;
        let plan = plan::plan(&pod, |name| self.claims.get(&key(namespace, name)));
        for event in plan.events {
            self.event_recorder.record(&self.recorder, &pod, event);
        }
        for claim in &plan.create {
            let made = self.client.create(CLAIMS.resource, namespace, claim).await;
            self.metrics.count(&crate::metrics::EPHEMERAL_CREATIONS, &[]);
            if made.is_err() {
                self.metrics.count(&crate::metrics::EPHEMERAL_FAILURES, &[]);
            }
            match made {
                Err(error) if error.is_terminating() || error.is_already_exists() => {}
                result => drop(result?),
            }
        }
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
