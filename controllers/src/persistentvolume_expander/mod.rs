//! Tells claims that ask for more who will give it to them.

mod plan;

use std::sync::Arc;

use client::{Recorder, Result, Store};

use crate::support::note::Told;
use crate::support::volumes::{CLAIMS, VOLUMES};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};

struct Controller {
    claims: Arc<Store>,
    volumes: Arc<Store>,
    recorder: Recorder,
    told: Told,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let queue = context.queue.clone();
    let claims = setup.informer(CLAIMS);
    claims.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller {
        claims: claims.store().clone(),
        volumes: setup.informer(VOLUMES).store().clone(),
        recorder: context.recorder.named("volume_expand"),
        told: Told::default(),
    }))
}

impl Controller {
    async fn bring(&self, key: &str) -> Result<Outcome> {
        let claim = self.claims.get(key);
        let volume = claim.as_ref().and_then(|claim| self.volumes.get(claim.str("spec.volumeName")));
        match claim.as_ref().and_then(|claim| Some((claim, plan::plan(claim, volume.as_deref())?))) {
            Some((claim, note)) => self.told.tell(&self.recorder, claim, note),
            // The next one that asks is told again.
            None => self.told.forget(key),
        }
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
