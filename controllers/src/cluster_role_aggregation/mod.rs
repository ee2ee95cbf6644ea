//! Gathers the rules of cluster roles into those that ask for them, such as `admin`, `edit` and `view`.

mod plan;

use std::sync::{Arc, Mutex, PoisonError};

use client::{Client, Key, Queue, Resource, Result, Selection, Store};

use crate::{Reconcile, Reconciling, Setup};

const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
const ALL: Selection = Selection { resource: ROLES, query: "" };
const MANAGER: &str = "clusterrole-aggregation-controller";

struct Controller {
    roles: Arc<Store>,
    client: Client,
}

pub fn start(setup: &mut Setup<'_>, client: Client, queue: &Arc<Queue>) -> Box<dyn Reconcile> {
    let informer = setup.informer(ALL);
    let roles = informer.store().clone();
    let gathering = Gathering::default();
    let queue = queue.clone();
    // Any role may be gathered by any that gathers: all of those are looked at again.
    informer.on_change(move |change| gathering.follow(change).into_iter().for_each(|key| queue.add(key)));
    Box::new(Controller { roles, client })
}

/// The names of the roles that gather; few, so that a change of one role does not look at all.
#[derive(Default)]
struct Gathering(Mutex<Vec<Key>>);

impl Gathering {
    fn follow(&self, change: &client::Change) -> Vec<Key> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|name| *name != change.key);
        if change.new.as_deref().is_some_and(plan::gathers) {
            names.push(change.key.clone());
        }
        names.clone()
    }
}

impl Controller {
    async fn bring(&self, name: &str) -> Result<()> {
        let Some(role) = self.roles.get(name) else { return Ok(()) };
        let Some(wanted) = plan::plan(&role, &self.roles.all()) else { return Ok(()) };
        self.client.apply(ROLES, "", &wanted, MANAGER).await.map(|_| ())
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
