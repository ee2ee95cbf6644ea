//! Publishes the cluster CA bundle to a ConfigMap in each namespace, where pods mount it.

mod plan;

use std::sync::Arc;

use client::{Client, Metrics, Resource, Result, Selection, Store};

use crate::service_account::NAMESPACES;
use crate::support::done_if_not_needed;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup, namespace_of};
use plan::{NAME, Plan};

const MAPS: Resource = Resource::core("configmaps");
const PUBLISHED: Selection = Selection { resource: MAPS, query: "fieldSelector=metadata.name%3Dkube-root-ca.crt" };

struct Controller {
    namespaces: Arc<Store>,
    published: Arc<Store>,
    client: Client,
    root_ca: String,
    metrics: Metrics,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    for selection in [NAMESPACES, PUBLISHED] {
        let queue = context.queue.clone();
        setup.informer(selection).on_change(move |change| queue.add(namespace_of(&change.key)));
    }
    let namespaces = setup.informer(NAMESPACES).store().clone();
    let published = setup.informer(PUBLISHED).store().clone();
    let root_ca = context.options.root_ca.clone();
    Some(Box::new(Controller {
        namespaces,
        published,
        client: context.client.clone(),
        root_ca,
        metrics: context.metrics.clone(),
    }))
}

impl Controller {
    async fn sync(&self, namespace: &str) -> Result<Outcome> {
        let begun = tokio::time::Instant::now();
        let result = self.publish(namespace).await;
        let code = result.as_ref().err().map_or(200, |error| error.code().unwrap_or(500)).to_string();
        self.metrics.count(&crate::metrics::ROOT_CA_SYNCS, &[&code]);
        self.metrics.record(&crate::metrics::ROOT_CA_DURATION, &[&code], begun.elapsed().as_secs_f64());
        result
    }

    async fn publish(&self, namespace: &str) -> Result<Outcome> {
        let there = self.published.get(&format!("{namespace}/{NAME}"));
        let plan = plan::plan(self.namespaces.get(namespace).as_deref(), there.as_deref(), &self.root_ca);
        let result = match plan {
            Plan::Keep => return Ok(Outcome::Done),
            Plan::Create(map) => self.client.create(MAPS, namespace, &map).await,
            Plan::Update(map) => self.client.update(MAPS, namespace, NAME, &map).await,
        };
        // If the ConfigMap already exists, the informer will report it.
        done_if_not_needed(result)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
