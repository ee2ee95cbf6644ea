//! Protects ServiceCIDRs that are in use from deletion, and maintains their Ready condition.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use api::{list, tree};
use client::{Client, Patch, Resource, Result, Selection, Store};

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::Plan;

const RANGES: Resource = Resource::new("networking.k8s.io", "v1", "servicecidrs");
const ADDRESSES: Resource = Resource::new("networking.k8s.io", "v1", "ipaddresses");
const MANAGER: &str = "service-cidr-controller";

struct Controller {
    ranges: Arc<Store>,
    addresses: Arc<Store>,
    client: Client,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let ranges = setup.informer(Selection::all(RANGES));
    let addresses = setup.informer(Selection::all(ADDRESSES));
    // Any range may block another one, and clusters have few.
    let (store, queue) = (ranges.store().clone(), context.queue.clone());
    ranges.on_change(move |_| store.keys().into_iter().for_each(|key| queue.add(key)));
    let (store, queue) = (ranges.store().clone(), context.queue.clone());
    addresses.on_change(move |change| {
        if change.new.is_none() {
            plan::waiting(&store.all()).for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        ranges: ranges.store().clone(),
        addresses: addresses.store().clone(),
        client: context.client.clone(),
        context: context.clone(),
    }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(range) = self.ranges.get(name) else { return Ok(Outcome::Done) };
        let plan = plan::plan(&range, &self.ranges.all(), &self.addresses.all(), self.context.now_seconds());
        let result = match plan {
            Plan::Keep => return Ok(Outcome::Done),
            Plan::Wait { seconds } => return Ok(Outcome::RequeueAfter(Duration::from_secs(seconds.unsigned_abs()))),
            Plan::AddFinalizer => self.patch(name, "finalizers").await,
            Plan::RemoveFinalizer => self.patch(name, "$deleteFromPrimitiveList/finalizers").await,
            Plan::SetReady(object) => {
                let patch = Patch::Apply { object: &object, manager: MANAGER, force: true };
                self.client.patch(RANGES, "", name, "status", patch).await.map(|_| ())
            }
        };
        match result {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Outcome::Done),
        }
    }

    async fn patch(&self, name: &str, field: &str) -> Result<()> {
        let patch = tree! { "metadata" => tree! { field => list![plan::FINALIZER] } };
        self.client.patch(RANGES, "", name, "", Patch::Strategic(&patch)).await.map(|_| ())
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
