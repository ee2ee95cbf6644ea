//! Records an event on claims that wait for an external resizer.

mod plan;

use std::sync::Arc;

use client::{Recorder, Result, Store};

use crate::support::event_message::EventDeduplicator;
use crate::support::volumes::{CLAIMS, VOLUMES};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    claims: Arc<Store>,
    volumes: Arc<Store>,
    recorder: Recorder,
    event_recorder: EventDeduplicator,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let queue = context.queue.clone();
    let claims = setup.informer(CLAIMS);
    claims.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller {
        claims: claims.store().clone(),
        volumes: setup.informer(VOLUMES).store().clone(),
        recorder: context.recorder.named("volume_expand"),
        event_recorder: EventDeduplicator::default(),
    }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let claim = self.claims.get(key);
        let volume = claim.as_ref().and_then(|claim| self.volumes.get(claim.str("spec.volumeName")));
        match claim.as_ref().and_then(|claim| Some((claim, plan::plan(claim, volume.as_deref())?))) {
            Some((claim, event)) => self.event_recorder.record(&self.recorder, claim, event),
            // The next resize gets a new event.
            None => self.event_recorder.remove(key),
        }
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
