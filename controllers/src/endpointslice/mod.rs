//! Maintains the EndpointSlices of services with a selector.

mod plan;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Client, Informer, Key, Metrics, Recorder, Result, Store, index, split};
use stdx::sync::{Mutex, MutexGuard, RwLock};

use crate::metrics;
use crate::support::endpoint_pods::{self, EndpointPods, Pod, SERVICES, Triggers};
use crate::support::event_message::EventMessage;
use crate::support::own_writes::OwnWrites;
use crate::support::slices::{self, BY_SERVICE, Changes, SLICES};
use crate::support::{NODES, PODS};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    services: Arc<Store>,
    pods: Arc<EndpointPods>,
    topology_cache: Arc<TopologyCache>,
    slices: Arc<Store>,
    client: Client,
    own: Arc<OwnWrites>,
    triggers: Mutex<BTreeMap<String, Triggers>>,
    max_endpoints: usize,
    metrics: Metrics,
    recorder: Recorder,
}

/// The topology of nodes, and the zone hints that were computed from it.
#[derive(Default)]
struct TopologyCache {
    nodes: RwLock<Arc<topology::NodeTopologies>>,
    /// Hints of services with topology-aware routing. Locked while such a service is planned: a node change then gets
    /// either the old hints or the result of the plan.
    hinted: Mutex<BTreeMap<String, plan::HintResults>>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let batch = context.options.endpointslice_updates_batch_period;
    let pods = endpoint_pods::follow(setup, context, batch);
    let own = Arc::new(OwnWrites::default());
    let slices = setup.informer(SLICES);
    slices.index_by(BY_SERVICE);
    follow_slices(&slices, context, own.clone(), batch);
    let topology_cache = follow_nodes(setup, context, pods.clone(), batch);
    show(context, slices.store().clone(), setup.informer(SERVICES).store().clone());
    Some(Box::new(Controller {
        services: setup.informer(SERVICES).store().clone(),
        pods,
        topology_cache,
        slices: slices.store().clone(),
        client: context.client.clone(),
        own,
        triggers: Mutex::default(),
        max_endpoints: context.options.max_endpoints_per_slice,
        metrics: context.metrics.clone(),
        recorder: context.recorder.named("endpoint-slice-controller"),
    }))
}

/// Registers the gauges of slices and services.
fn show(context: &Context, slices: Arc<Store>, services: Arc<Store>) {
    context.metrics.on_collect([&metrics::SERVICES_BY_DISTRIBUTION], move |metrics| {
        metrics.record(&metrics::SLICES, &[], slices.len() as f64);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for service in services.all() {
            *counts.entry(plan::distribution(&service).to_string()).or_default() += 1;
        }
        counts.remove("");
        for (distribution, count) in &counts {
            metrics.record(&metrics::SERVICES_BY_DISTRIBUTION, &[distribution], *count as f64);
        }
    });
}

/// Corrects slices that other clients changed.
fn follow_slices(slices: &Informer, context: &Context, own: Arc<OwnWrites>, batch: Duration) {
    let queue = context.queue.clone();
    slices.on_change(move |change| {
        if own.is_own(change) {
            return;
        }
        let seen = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
        let ours = seen.filter(|slice| slices::is_managed_by(slice, plan::MANAGER));
        ours.filter_map(slices::service_key).for_each(|key| endpoint_pods::add(&queue, Key::from(key), batch));
    });
}

/// Keeps the topology of nodes; queues the services of pods on a changed node, and services whose hints no longer
/// match the zones.
fn follow_nodes(setup: &Setup, context: &Context, pods: Arc<EndpointPods>, batch: Duration) -> Arc<TopologyCache> {
    setup.informer(PODS).index_by(index::NODE);
    let topology_cache: Arc<TopologyCache> = Arc::default();
    let (queue, kept) = (context.queue.clone(), topology_cache.clone());
    setup.informer(NODES).on_change(move |change| {
        let new = change.new.as_deref().map(topology::NodeTopology::of);
        let zone = new.as_ref().map(|place| place.zone.clone());
        let Some(old) = kept.put(&change.key, new) else { return };
        if old.map(|place| place.zone) != zone {
            pods.services_on(&change.key).into_iter().for_each(|key| endpoint_pods::add(&queue, key, batch));
        }
        kept.outdated().into_iter().for_each(|key| endpoint_pods::add(&queue, key, batch));
    });
    topology_cache
}

impl TopologyCache {
    /// The previous topology of the node; None if it has not changed.
    fn put(&self, node: &Key, new: Option<topology::NodeTopology>) -> Option<Option<topology::NodeTopology>> {
        let mut nodes = self.nodes.write();
        if nodes.get(node) == new.as_ref() {
            return None;
        }
        let nodes = Arc::make_mut(&mut nodes);
        Some(match new {
            Some(place) => nodes.insert(node.clone(), place),
            None => nodes.remove(node),
        })
    }

    fn nodes(&self) -> Arc<topology::NodeTopologies> {
        self.nodes.read().clone()
    }

    fn hinted(&self) -> MutexGuard<'_, BTreeMap<String, plan::HintResults>> {
        self.hinted.lock()
    }

    fn outdated(&self) -> Vec<Key> {
        let hinted = self.hinted();
        if hinted.is_empty() {
            return Vec::new();
        }
        let shares = topology::shares(&self.nodes());
        let is_outdated = |all: &plan::HintResults| all.values().any(|hinted| hinted.is_outdated(shares.as_ref()));
        hinted.iter().filter(|(_, all)| is_outdated(all)).map(|(key, _)| Key::from(key.clone())).collect()
    }
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(service) = self.services.get(key) else {
            // The garbage collector deletes the slices.
            self.triggers().remove(key);
            self.topology_cache.hinted().remove(key);
            return Ok(Outcome::Done);
        };
        if !endpoint_pods::selects(&service) {
            return Ok(Outcome::Done);
        }
        let pods = self.pods.pods_of(&service);
        let trigger = self.triggers().entry(key.to_string()).or_default().follow(&service, &pods);
        let (changes, events) = self.plan(key, &service, &pods, trigger.as_deref());
        let counts = [changes.create.len(), changes.update.len(), changes.delete.len()];
        let result = slices::execute(&self.client, &self.own, split(key).0, changes).await;
        self.count(&service, counts, result.is_ok());
        events.iter().for_each(|event| event.record(&self.recorder, &service));
        if let Err(error) = &result {
            let text = format!("Error updating Endpoint Slices for Service {key}: {}", error.message());
            self.recorder.warning(&service, "FailedToUpdateEndpointSlices", &text);
        }
        result.map(|()| Outcome::Done)
    }

    /// The changes to the slices, and events about hints.
    fn plan(
        &self,
        key: &str,
        service: &Tree,
        pods: &[Arc<Pod>],
        trigger: Option<&str>,
    ) -> (Changes, Vec<EventMessage>) {
        let held = plan::is_by_zone_size(service).then(|| self.topology_cache.hinted());
        let plan = plan::plan(&plan::ObservedState {
            service,
            pods,
            topologies: &self.topology_cache.nodes(),
            slices: &slices::slices_of_service(&self.slices, key, plan::MANAGER),
            max_endpoints: self.max_endpoints,
            trigger,
        });
        let mut hinted = held.unwrap_or_else(|| self.topology_cache.hinted());
        let before = hinted.remove(key).unwrap_or_default();
        let events = plan::hint_events(&before, &plan.hinted);
        if !plan.hinted.is_empty() {
            hinted.insert(key.to_string(), plan.hinted);
        }
        (plan.changes, events)
    }

    fn count(&self, service: &Tree, counts: [usize; 3], is_ok: bool) {
        self.metrics.count(&metrics::SLICE_SYNCS, &[if is_ok { "success" } else { "error" }]);
        for (operation, count) in ["create", "update", "delete"].into_iter().zip(counts).filter(|(_, count)| *count > 0)
        {
            self.metrics.record(&metrics::SLICE_CHANGES, &[operation], count as f64);
        }
        let topology = if plan::is_by_zone_size(service) { "Auto" } else { "Disabled" };
        let labels = [topology, plan::distribution(service)];
        self.metrics.record(&metrics::SLICES_CHANGED, &labels, counts.iter().sum::<usize>() as f64);
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
