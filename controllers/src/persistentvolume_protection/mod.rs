//! Protects bound volumes from deletion.

use std::sync::Arc;

use client::{Client, Result, Store};

use crate::support::finalizers;
use crate::support::volumes::VOLUMES;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const FINALIZER: &str = "kubernetes.io/pv-protection";

struct Controller {
    volumes: Arc<Store>,
    client: Client,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let queue = context.queue.clone();
    let volumes = setup.informer(VOLUMES);
    volumes.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller { volumes: volumes.store().clone(), client: context.client.clone() }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(volume) = self.volumes.get(name) else { return Ok(Outcome::Done) };
        let is_bound = || volume.str("status.phase") == "Bound";
        let Some(changed) = finalizers::protect(&volume, FINALIZER, is_bound) else { return Ok(Outcome::Done) };
        finalizers::write(&self.client, VOLUMES.resource, &changed).await
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
