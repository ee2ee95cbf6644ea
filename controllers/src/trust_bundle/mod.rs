//! Publishes the cluster CA bundle as a ClusterTrustBundle, and removes outdated ones.

mod plan;

use std::sync::Arc;

use client::{DeleteOptions, Key, Resource, Result, Selection, Store};

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::Plan;

const BUNDLES: Resource = Resource::new("certificates.k8s.io", "v1", "clustertrustbundles");
const OURS: Selection =
    Selection { resource: BUNDLES, query: "fieldSelector=spec.signerName%3Dkubernetes.io%2Fkube-apiserver-serving" };

struct Controller {
    bundles: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    if context.options.root_ca.is_empty() {
        return None;
    }
    let informer = setup.informer(OURS);
    let queue = context.queue.clone();
    informer.on_change(move |_| queue.add(Key::from("bundle")));
    // There is no bundle initially.
    context.queue.add(Key::from("bundle"));
    Some(Box::new(Controller { bundles: informer.store().clone(), context: context.clone() }))
}

impl Controller {
    async fn sync(&self) -> Result<Outcome> {
        let Plan { create, update, delete } = plan::plan(&self.bundles.all(), &self.context.options.root_ca);
        let client = &self.context.client;
        if let Some(bundle) = create {
            match client.create(BUNDLES, "", &bundle).await {
                Err(error) if error.is_already_exists() => {}
                result => drop(result?),
            }
        }
        if let Some(bundle) = update {
            client.update(BUNDLES, "", bundle.str("metadata.name"), &bundle).await?;
        }
        for bundle in delete {
            match client.delete(BUNDLES, "", bundle.str("metadata.name"), DeleteOptions::of(&bundle)).await {
                Err(error) if error.is_not_found() => {}
                result => drop(result?),
            }
        }
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, _: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync())
    }
}
