//! Checks the types of validating admission policies and writes the warnings into their status.

mod plan;

use std::sync::Arc;

use api::Tree;
use client::{Client, Patch, Resource, Result, Selection, Store};

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const POLICIES: Resource = Resource::new("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies");
const DEFINITIONS: Resource = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const MANAGER: &str = "validatingadmissionpolicy-status";

struct Controller {
    policies: Arc<Store>,
    definitions: Arc<Store>,
    client: Client,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(Selection::all(POLICIES));
    let policies = informer.store().clone();
    let definitions = setup.informer(Selection::all(DEFINITIONS)).store().clone();
    let queue = context.queue.clone();
    informer.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller { policies, definitions, client: context.client.clone() }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(policy) = self.policies.get(name).filter(|policy| plan::is_due(policy)) else {
            return Ok(Outcome::Done);
        };
        let definitions: Vec<Tree> = self.definitions.all().iter().map(|object| (**object).clone()).collect();
        let object = plan::describe(&policy, &definitions);
        let patch = Patch::Apply { object: &object, manager: MANAGER, force: true };
        self.client.patch(POLICIES, "", name, "status", patch).await.map(|_| Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
