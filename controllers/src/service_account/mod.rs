//! Creates the `default` service account of each namespace, also after it was deleted.

pub(crate) mod plan;

use std::sync::Arc;

use client::{Client, Resource, Result, Selection, Store};

use crate::support::done_if_not_needed;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup, namespace_of};

const ACCOUNTS: Resource = Resource::core("serviceaccounts");
pub(crate) const NAMESPACES: Selection = Selection { resource: Resource::core("namespaces"), query: "" };
const DEFAULTS: Selection = Selection { resource: ACCOUNTS, query: "fieldSelector=metadata.name%3Ddefault" };

struct Controller {
    namespaces: Arc<Store>,
    accounts: Arc<Store>,
    client: Client,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    for selection in [NAMESPACES, DEFAULTS] {
        let queue = context.queue.clone();
        setup.informer(selection).on_change(move |change| queue.add(namespace_of(&change.key)));
    }
    let namespaces = setup.informer(NAMESPACES).store().clone();
    let accounts = setup.informer(DEFAULTS).store().clone();
    Some(Box::new(Controller { namespaces, accounts, client: context.client.clone() }))
}

impl Controller {
    async fn sync(&self, namespace: &str) -> Result<Outcome> {
        let is_there = self.accounts.get(&format!("{namespace}/{}", plan::DEFAULT)).is_some();
        let Some(account) = plan::plan(self.namespaces.get(namespace).as_deref(), is_there) else {
            return Ok(Outcome::Done);
        };
        done_if_not_needed(self.client.create(ACCOUNTS, namespace, &account).await)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
