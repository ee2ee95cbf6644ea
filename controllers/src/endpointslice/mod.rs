//! Keeps the EndpointSlices of services that choose pods.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::Tree;
use client::{Change, Client, Informer, Key, Resource, Result, Selection, Store, index, split};

use crate::support::PODS;
use crate::support::own::Own;
use crate::support::serving::{self, SERVICES, Triggers};
use crate::support::slices::{self, BY_SERVICE, SLICES};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};

const NODES: Selection = Selection::all(Resource::core("nodes"));

struct Controller {
    services: Arc<Store>,
    pods: Arc<Store>,
    nodes: Arc<Store>,
    slices: Arc<Store>,
    client: Client,
    own: Arc<Own>,
    triggers: Mutex<BTreeMap<String, Triggers>>,
    max_endpoints: usize,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let batch = context.options.endpointslice_updates_batch_period;
    serving::follow(setup, context, batch);
    let own = Arc::new(Own::default());
    let slices = setup.informer(SLICES);
    slices.index_by(BY_SERVICE);
    follow_slices(&slices, context, own.clone(), batch);
    follow_nodes(setup, context, batch);
    Some(Box::new(Controller {
        services: setup.informer(SERVICES).store().clone(),
        pods: setup.informer(PODS).store().clone(),
        nodes: setup.informer(NODES).store().clone(),
        slices: slices.store().clone(),
        client: context.client.clone(),
        own,
        triggers: Mutex::default(),
        max_endpoints: context.options.max_endpoints_per_slice,
    }))
}

/// What others do to our slices is put right.
fn follow_slices(slices: &Informer, context: &Context, own: Arc<Own>, batch: Duration) {
    let queue = context.queue.clone();
    slices.on_change(move |change| {
        if own.is_own(change) {
            return;
        }
        let seen = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
        let ours = seen.filter(|slice| slices::is_managed_by(slice, plan::MANAGER));
        ours.filter_map(slices::service_key).for_each(|key| serving::add(&queue, Key::from(key), batch));
    });
}

/// Pods of a node that comes or goes, or changes its zone.
fn follow_nodes(setup: &Setup, context: &Context, batch: Duration) {
    let pods = setup.informer(PODS);
    pods.index_by(index::NODE);
    let (pods, services) = (pods.store().clone(), setup.informer(SERVICES).store().clone());
    let queue = context.queue.clone();
    setup.informer(NODES).on_change(move |change| {
        if !is_moved(change) {
            return;
        }
        for pod in pods.find(index::NODE, &change.key) {
            serving::services_of(&services, &pod).into_iter().for_each(|key| serving::add(&queue, key, batch));
        }
    });
}

fn is_moved(change: &Change) -> bool {
    let zone = |node: &Tree| plan::zone(node).to_string();
    change.old.as_deref().map(zone) != change.new.as_deref().map(zone)
}

impl Controller {
    async fn bring(&self, key: &str) -> Result<Outcome> {
        let Some(service) = self.services.get(key) else {
            // The garbage collector takes the slices.
            self.triggers().remove(key);
            return Ok(Outcome::Done);
        };
        if !serving::selects(&service) {
            return Ok(Outcome::Done);
        }
        let pods = serving::pods_of(&self.pods, &service);
        let trigger = self.triggers().entry(key.to_string()).or_default().follow(&service, &pods);
        let changes = plan::plan(&plan::Observed {
            service: &service,
            pods: &pods,
            nodes: &self.nodes_of(&pods),
            slices: &slices::of_service(&self.slices, key, plan::MANAGER),
            max_endpoints: self.max_endpoints,
            trigger: trigger.as_deref(),
        });
        slices::carry_out(&self.client, &self.own, split(key).0, changes).await?;
        Ok(Outcome::Done)
    }

    fn nodes_of(&self, pods: &[Arc<Tree>]) -> BTreeMap<String, Arc<Tree>> {
        let mut nodes = BTreeMap::new();
        for pod in pods {
            let name = pod.str("spec.nodeName");
            if !nodes.contains_key(name)
                && let Some(node) = self.nodes.get(name)
            {
                nodes.insert(name.to_string(), node);
            }
        }
        nodes
    }

    fn triggers(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Triggers>> {
        self.triggers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
