//! Mirrors user-created Endpoints to EndpointSlices.

mod plan;

use std::sync::Arc;

use client::{Client, Key, Recorder, Result, Store, split};

use crate::endpoints::ENDPOINTS;
use crate::support::endpoint_pods::{self, SERVICES};
use crate::support::own_writes::OwnWrites;
use crate::support::slices::{self, BY_SERVICE, SLICES};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

struct Controller {
    services: Arc<Store>,
    endpoints: Arc<Store>,
    slices: Arc<Store>,
    client: Client,
    recorder: Recorder,
    own: Arc<OwnWrites>,
    limit: usize,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let batch = context.options.mirroring_endpointslice_updates_batch_period;
    for selection in [SERVICES, ENDPOINTS] {
        let queue = context.queue.clone();
        setup.informer(selection).on_change(move |change| endpoint_pods::add(&queue, change.key.clone(), batch));
    }
    let own = Arc::new(OwnWrites::default());
    let slices = setup.informer(SLICES);
    slices.index_by(BY_SERVICE);
    let (queue, known) = (context.queue.clone(), own.clone());
    slices.on_change(move |change| {
        let seen = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
        let mut ours = seen.filter(|slice| slices::is_managed_by(slice, plan::MANAGER));
        if !known.is_own(change)
            && let Some(key) = ours.find_map(slices::service_key)
        {
            endpoint_pods::add(&queue, Key::from(key), batch);
        }
    });
    Some(Box::new(Controller {
        services: setup.informer(SERVICES).store().clone(),
        endpoints: setup.informer(ENDPOINTS).store().clone(),
        slices: slices.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("endpoint-slice-mirroring-controller"),
        own,
        limit: context.options.mirroring_max_endpoints_per_subset,
    }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let (endpoints, service) = (self.endpoints.get(key), self.services.get(key));
        let slices = slices::slices_of_service(&self.slices, key, plan::MANAGER);
        let plan = plan::plan(endpoints.as_deref(), service.as_deref(), &slices, self.limit);
        if let Some(endpoints) = &endpoints {
            plan.warnings.iter().for_each(|(reason, text)| self.recorder.warning(endpoints, reason, text));
        }
        slices::execute(&self.client, &self.own, split(key).0, plan.changes).await?;
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
