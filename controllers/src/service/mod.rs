//! Publishes the addresses of nodes in services of type LoadBalancer.

mod plan;

use std::sync::Arc;

use api::Tree;
use client::{Change, Client, Index, Recorder, Result, Store, split};

use crate::support::NODES;
use crate::support::endpoint_pods::SERVICES;
use crate::support::finalizers;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

/// The services that have a load balancer or need one.
const BALANCED: Index =
    Index { name: "balanced", values: |service| Vec::from_iter(is_relevant(service).then(String::new)) };

fn is_relevant(service: &Tree) -> bool {
    plan::needs_load_balancer(service) || finalizers::has(service, plan::FINALIZER)
}

struct Controller {
    services: Arc<Store>,
    nodes: Arc<Store>,
    client: Client,
    recorder: Recorder,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    if !context.options.balance_by_nodes {
        return None;
    }
    let services = setup.informer(SERVICES);
    services.index_by(BALANCED);
    let queue = context.queue.clone();
    services.on_change(move |change| {
        if change.new.as_deref().is_some_and(is_relevant) {
            queue.add(change.key.clone());
        }
    });
    let (store, queue) = (services.store().clone(), context.queue.clone());
    setup.informer(NODES).on_change(move |change| {
        if is_seen(change) {
            store.find_keys(BALANCED, "").into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        services: services.store().clone(),
        nodes: setup.informer(NODES).store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("service-controller"),
    }))
}

fn is_seen(change: &Change) -> bool {
    let relevant = |node: &Tree| (plan::takes_traffic(node), node.at("status.addresses").clone());
    change.old.as_deref().map(relevant) != change.new.as_deref().map(relevant)
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(service) = self.services.get(key) else { return Ok(Outcome::Done) };
        let plan = plan::plan(&service, &self.nodes.all());
        if let Some(event) = plan.before {
            event.record(&self.recorder, &service);
        }
        if let Some(write) = plan.write {
            let (namespace, name) = split(key);
            match self.client.update_status(SERVICES.resource, namespace, name, &write).await {
                Err(error) if error.is_not_found() => return Ok(Outcome::Done),
                result => drop(result?),
            }
        }
        if let Some(event) = plan.after {
            event.record(&self.recorder, &service);
        }
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
