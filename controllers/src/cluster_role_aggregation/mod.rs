//! Gathers the rules of cluster roles into those that ask for them, such as `admin`, `edit` and `view`.

mod plan;

use std::sync::Arc;

use client::{Client, Key, Resource, Result, Selection, Store};
use stdx::sync::Mutex;

use crate::{Context, Outcome, Reconcile, Reconciling, Setup};

const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const ALL: Selection = Selection { resource: ROLES, query: "" };
const MANAGER: &str = "clusterrole-aggregation-controller";

struct Controller {
    roles: Arc<Store>,
    client: Client,
}

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(ALL);
    let roles = informer.store().clone();
    let gathering = Gathering::default();
    let queue = context.queue.clone();
    // Any role may be gathered by any that gathers: all of those are looked at again.
    informer.on_change(move |change| gathering.follow(change).into_iter().for_each(|key| queue.add(key)));
    Some(Box::new(Controller { roles, client: context.client.clone() }))
}

/// The names of the roles that gather; few, so that a change of one role does not look at all.
#[derive(Default)]
struct Gathering(Mutex<Vec<Key>>);

impl Gathering {
    fn follow(&self, change: &client::Change) -> Vec<Key> {
        let mut names = self.0.lock();
        names.retain(|name| *name != change.key);
        if change.new.as_deref().is_some_and(plan::gathers) {
            names.push(change.key.clone());
        }
        names.clone()
    }
}

impl Controller {
    async fn bring(&self, name: &str) -> Result<Outcome> {
        let Some(role) = self.roles.get(name) else { return Ok(Outcome::Done) };
        let Some(wanted) = plan::plan(&role, &self.roles.all()) else { return Ok(Outcome::Done) };
        self.client.apply(ROLES, "", &wanted, MANAGER).await.map(|_| Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
