//! Keeps the EndpointSlices of services that choose pods.

mod plan;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Client, Informer, Key, Metrics, Recorder, Result, Store, index, split};
use stdx::sync::{Mutex, MutexGuard, RwLock};

use crate::meters;
use crate::support::note::Note;
use crate::support::own::Own;
use crate::support::serving::{self, Pod, SERVICES, Served, Triggers};
use crate::support::slices::{self, BY_SERVICE, Changes, SLICES};
use crate::support::{NODES, PODS, said};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};

struct Controller {
    services: Arc<Store>,
    pods: Arc<Served>,
    places: Arc<Places>,
    slices: Arc<Store>,
    client: Client,
    own: Arc<Own>,
    triggers: Mutex<BTreeMap<String, Triggers>>,
    max_endpoints: usize,
    metrics: Metrics,
    recorder: Recorder,
}

/// What is known of nodes, and what became of hints by it.
#[derive(Default)]
struct Places {
    nodes: RwLock<Arc<topology::Places>>,
    /// Of services that ask for hints by the size of zones. Held while one is planned for, so that a change of
    /// nodes meets either its plan or what came of it.
    hinted: Mutex<BTreeMap<String, plan::AllHinted>>,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let batch = context.options.endpointslice_updates_batch_period;
    let pods = serving::follow(setup, context, batch);
    let own = Arc::new(Own::default());
    let slices = setup.informer(SLICES);
    slices.index_by(BY_SERVICE);
    follow_slices(&slices, context, own.clone(), batch);
    let places = follow_nodes(setup, context, pods.clone(), batch);
    show(context, slices.store().clone(), setup.informer(SERVICES).store().clone());
    Some(Box::new(Controller {
        services: setup.informer(SERVICES).store().clone(),
        pods,
        places,
        slices: slices.store().clone(),
        client: context.client.clone(),
        own,
        triggers: Mutex::default(),
        max_endpoints: context.options.max_endpoints_per_slice,
        metrics: context.metrics.clone(),
        recorder: context.recorder.named("endpoint-slice-controller"),
    }))
}

/// What there is, for whoever asks.
fn show(context: &Context, slices: Arc<Store>, services: Arc<Store>) {
    context.metrics.on_look([&meters::SERVICES_BY_DISTRIBUTION], move |metrics| {
        metrics.record(&meters::SLICES, &[], slices.len() as f64);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for service in services.all() {
            *counts.entry(plan::distribution(&service).to_string()).or_default() += 1;
        }
        counts.remove("");
        for (distribution, count) in &counts {
            metrics.record(&meters::SERVICES_BY_DISTRIBUTION, &[distribution], *count as f64);
        }
    });
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

/// Keeps what matters of nodes, and looks at the pods of one that comes, goes or moves, and at services whose
/// hints no longer fit the zones.
fn follow_nodes(setup: &Setup, context: &Context, pods: Arc<Served>, batch: Duration) -> Arc<Places> {
    setup.informer(PODS).index_by(index::NODE);
    let places: Arc<Places> = Arc::default();
    let (queue, kept) = (context.queue.clone(), places.clone());
    setup.informer(NODES).on_change(move |change| {
        let new = change.new.as_deref().map(topology::Place::of);
        let zone = new.as_ref().map(|place| place.zone.clone());
        let Some(old) = kept.put(&change.key, new) else { return };
        if old.map(|place| place.zone) != zone {
            pods.services_on(&change.key).into_iter().for_each(|key| serving::add(&queue, key, batch));
        }
        kept.outdated().into_iter().for_each(|key| serving::add(&queue, key, batch));
    });
    places
}

impl Places {
    /// What was known of the node before; none where that has not changed.
    fn put(&self, node: &Key, new: Option<topology::Place>) -> Option<Option<topology::Place>> {
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

    fn nodes(&self) -> Arc<topology::Places> {
        self.nodes.read().clone()
    }

    fn hinted(&self) -> MutexGuard<'_, BTreeMap<String, plan::AllHinted>> {
        self.hinted.lock()
    }

    fn outdated(&self) -> Vec<Key> {
        let hinted = self.hinted();
        if hinted.is_empty() {
            return Vec::new();
        }
        let shares = topology::shares(&self.nodes());
        let is_outdated = |all: &plan::AllHinted| all.values().any(|hinted| hinted.is_outdated(shares.as_ref()));
        hinted.iter().filter(|(_, all)| is_outdated(all)).map(|(key, _)| Key::from(key.clone())).collect()
    }
}

impl Controller {
    async fn bring(&self, key: &str) -> Result<Outcome> {
        let Some(service) = self.services.get(key) else {
            // The garbage collector takes the slices.
            self.triggers().remove(key);
            self.places.hinted().remove(key);
            return Ok(Outcome::Done);
        };
        if !serving::selects(&service) {
            return Ok(Outcome::Done);
        }
        let pods = self.pods.pods_of(&service);
        let trigger = self.triggers().entry(key.to_string()).or_default().follow(&service, &pods);
        let (changes, notes) = self.plan(key, &service, &pods, trigger.as_deref());
        let counts = [changes.create.len(), changes.update.len(), changes.delete.len()];
        let result = slices::carry_out(&self.client, &self.own, split(key).0, changes).await;
        self.count(&service, counts, result.is_ok());
        notes.iter().for_each(|note| note.tell(&self.recorder, &service));
        if let Err(error) = &result {
            let text = format!("Error updating Endpoint Slices for Service {key}: {}", said(error));
            self.recorder.warning(&service, "FailedToUpdateEndpointSlices", &text);
        }
        result.map(|()| Outcome::Done)
    }

    /// What to write, and what to tell of hints.
    fn plan(&self, key: &str, service: &Tree, pods: &[Arc<Pod>], trigger: Option<&str>) -> (Changes, Vec<Note>) {
        let held = plan::is_by_zone_size(service).then(|| self.places.hinted());
        let plan = plan::plan(&plan::Observed {
            service,
            pods,
            places: &self.places.nodes(),
            slices: &slices::of_service(&self.slices, key, plan::MANAGER),
            max_endpoints: self.max_endpoints,
            trigger,
        });
        let mut hinted = held.unwrap_or_else(|| self.places.hinted());
        let before = hinted.remove(key).unwrap_or_default();
        let notes = plan::notes(&before, &plan.hinted);
        if !plan.hinted.is_empty() {
            hinted.insert(key.to_string(), plan.hinted);
        }
        (plan.changes, notes)
    }

    fn count(&self, service: &Tree, counts: [usize; 3], is_ok: bool) {
        self.metrics.count(&meters::SLICE_SYNCS, &[if is_ok { "success" } else { "error" }]);
        for (operation, count) in ["create", "update", "delete"].into_iter().zip(counts).filter(|(_, count)| *count > 0)
        {
            self.metrics.record(&meters::SLICE_CHANGES, &[operation], count as f64);
        }
        let topology = if plan::is_by_zone_size(service) { "Auto" } else { "Disabled" };
        let labels = [topology, plan::distribution(service)];
        self.metrics.record(&meters::SLICES_CHANGED, &labels, counts.iter().sum::<usize>() as f64);
    }

    fn triggers(&self) -> MutexGuard<'_, BTreeMap<String, Triggers>> {
        self.triggers.lock()
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
