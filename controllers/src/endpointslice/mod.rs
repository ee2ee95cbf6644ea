//! Keeps the EndpointSlices of services that choose pods.

mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use api::{Str, Tree};
use client::{Client, Informer, Key, Metrics, Result, Store, index, split};

use crate::meters;
use crate::support::own::Own;
use crate::support::serving::{self, SERVICES, Served, Triggers};
use crate::support::slices::{self, BY_SERVICE, SLICES};
use crate::support::{NODES, PODS};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};

struct Controller {
    services: Arc<Store>,
    pods: Arc<Served>,
    zones: Arc<RwLock<Arc<plan::Zones>>>,
    slices: Arc<Store>,
    client: Client,
    own: Arc<Own>,
    triggers: Mutex<BTreeMap<String, Triggers>>,
    max_endpoints: usize,
    metrics: Metrics,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let batch = context.options.endpointslice_updates_batch_period;
    let pods = serving::follow(setup, context, batch);
    let own = Arc::new(Own::default());
    let slices = setup.informer(SLICES);
    slices.index_by(BY_SERVICE);
    follow_slices(&slices, context, own.clone(), batch);
    let zones = follow_nodes(setup, context, pods.clone(), batch);
    show(context, slices.store().clone(), setup.informer(SERVICES).store().clone());
    Some(Box::new(Controller {
        services: setup.informer(SERVICES).store().clone(),
        pods,
        zones,
        slices: slices.store().clone(),
        client: context.client.clone(),
        own,
        triggers: Mutex::default(),
        max_endpoints: context.options.max_endpoints_per_slice,
        metrics: context.metrics.clone(),
    }))
}

/// What there is, for whoever asks.
fn show(context: &Context, slices: Arc<Store>, services: Arc<Store>) {
    context.metrics.on_look([&meters::SERVICES_BY_DISTRIBUTION], move |metrics| {
        metrics.record(&meters::SLICES, &[], slices.len() as f64);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for service in services.all() {
            *counts.entry(service.str("spec.trafficDistribution").to_string()).or_default() += 1;
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

/// Keeps the zones of nodes, and looks at the pods of one that comes, goes or moves.
fn follow_nodes(setup: &Setup, context: &Context, pods: Arc<Served>, batch: Duration) -> Arc<RwLock<Arc<plan::Zones>>> {
    setup.informer(PODS).index_by(index::NODE);
    let zones: Arc<RwLock<Arc<plan::Zones>>> = Arc::default();
    let (queue, kept) = (context.queue.clone(), zones.clone());
    setup.informer(NODES).on_change(move |change| {
        let new = change.new.as_deref().map(|node| Str::from(plan::zone(node)));
        let mut kept = kept.write().unwrap_or_else(PoisonError::into_inner);
        if kept.get(&change.key) == new.as_ref() {
            return;
        }
        match new {
            Some(zone) => drop(Arc::make_mut(&mut kept).insert(change.key.clone(), zone)),
            None => drop(Arc::make_mut(&mut kept).remove(&change.key)),
        }
        drop(kept);
        pods.services_on(&change.key).into_iter().for_each(|key| serving::add(&queue, key, batch));
    });
    zones
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
        let pods = self.pods.pods_of(&service);
        let trigger = self.triggers().entry(key.to_string()).or_default().follow(&service, &pods);
        let changes = plan::plan(&plan::Observed {
            service: &service,
            pods: &pods,
            zones: &self.zones(),
            slices: &slices::of_service(&self.slices, key, plan::MANAGER),
            max_endpoints: self.max_endpoints,
            trigger: trigger.as_deref(),
        });
        let counts = [changes.create.len(), changes.update.len(), changes.delete.len()];
        let result = slices::carry_out(&self.client, &self.own, split(key).0, changes).await;
        self.count(&service, counts, result.is_ok());
        result.map(|()| Outcome::Done)
    }

    fn count(&self, service: &Tree, counts: [usize; 3], is_ok: bool) {
        self.metrics.count(&meters::SLICE_SYNCS, &[if is_ok { "success" } else { "error" }]);
        for (operation, count) in ["create", "update", "delete"].into_iter().zip(counts).filter(|(_, count)| *count > 0)
        {
            self.metrics.record(&meters::SLICE_CHANGES, &[operation], count as f64);
        }
        let labels = [plan::topology(service), service.str("spec.trafficDistribution")];
        self.metrics.record(&meters::SLICES_CHANGED, &labels, counts.iter().sum::<usize>() as f64);
    }

    fn zones(&self) -> Arc<plan::Zones> {
        self.zones.read().unwrap_or_else(PoisonError::into_inner).clone()
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
