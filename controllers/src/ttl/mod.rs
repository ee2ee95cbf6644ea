//! Annotates nodes with the TTL of their caches, by the size of the cluster.

mod plan;

use std::sync::Arc;

use client::{Patch, Resource, Result, Selection, Store};
use stdx::sync::Mutex;

use crate::support::done_if_not_found;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::ClusterSize;

const NODES: Resource = Resource::core("nodes");

struct Controller {
    nodes: Arc<Store>,
    size: Mutex<ClusterSize>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(Selection::all(NODES));
    let queue = context.queue.clone();
    informer.on_change(move |change| queue.add(change.key.clone()));
    Some(Box::new(Controller { nodes: informer.store().clone(), size: Mutex::default(), context: context.clone() }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let size = self.size();
        let Some(patch) = self.nodes.get(name).and_then(|node| size.patch(&node)) else { return Ok(Outcome::Done) };
        done_if_not_found(self.context.client.patch(NODES, "", name, "", Patch::Merge(&patch)).await)
    }

    /// All nodes are queued when the step has changed.
    fn size(&self) -> ClusterSize {
        let mut size = self.size.lock();
        let new = size.follow(self.nodes.len());
        if new != *size {
            *size = new;
            self.nodes.keys().into_iter().for_each(|key| self.context.queue.add(key));
        }
        new
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
