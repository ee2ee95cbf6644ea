//! Aggregates the rules of cluster roles into roles with an aggregation rule, such as `admin`, `edit` and `view`.

mod plan;

use std::sync::Arc;

use client::{Client, Key, Resource, Result, Selection, Store};
use stdx::sync::Mutex;

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const ALL: Selection = Selection { resource: ROLES, query: "" };
const MANAGER: &str = "clusterrole-aggregation-controller";

struct Controller {
    roles: Arc<Store>,
    client: Client,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(ALL);
    let roles = informer.store().clone();
    let gathering = AggregatedRoles::default();
    let queue = context.queue.clone();
    // Any role may match any aggregation rule: every aggregated role is queued.
    informer.on_change(move |change| gathering.update(change).into_iter().for_each(|key| queue.add(key)));
    Some(Box::new(Controller { roles, client: context.client.clone() }))
}

/// The names of the aggregated roles. They are few: a change of one role need not scan all roles.
#[derive(Default)]
struct AggregatedRoles(Mutex<Vec<Key>>);

impl AggregatedRoles {
    fn update(&self, change: &client::Change) -> Vec<Key> {
        let mut names = self.0.lock();
        names.retain(|name| *name != change.key);
        if change.new.as_deref().is_some_and(plan::is_aggregated) {
            names.push(change.key.clone());
        }
        names.clone()
    }
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(role) = self.roles.get(name) else { return Ok(Outcome::Done) };
        let Some(wanted) = plan::plan(&role, &self.roles.all()) else { return Ok(Outcome::Done) };
        self.client.apply(ROLES, "", &wanted, MANAGER).await.map(|_| Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
