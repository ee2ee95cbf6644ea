//! Deletes pods that no other component ends: surplus finished pods, pods of deleted or out-of-service nodes, and
//! pods that were deleted before they were scheduled.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{DeleteOptions, Index, Key, Patch, Resource, Result, Selection, Store, index};
use stdx::sync::Mutex;

use crate::metrics;
use crate::support::batch::bounded;
use crate::support::clock::until;
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Node, Plan};

const PODS: Resource = Resource::core("pods");
const NODES: Resource = Resource::core("nodes");
const ENDED: Index = Index { name: "ended", values: |pod| Vec::from_iter(plan::has_ended(pod).then(String::new)) };
/// The key for counting finished pods; no pod has it.
const COUNT: &str = "ended";
/// The minimum interval between two counts.
const PERIOD: Duration = Duration::from_secs(20);
/// A node that is missing for less than this may be about to register again.
const QUARANTINE_SECONDS: i64 = 40;
const FORGET_SECONDS: i64 = 3600;

struct Controller {
    pods: Arc<Store>,
    nodes: Arc<Store>,
    context: Context,
    /// Since when each node is missing, by name.
    missing: Mutex<BTreeMap<String, i64>>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let pods = setup.informer(Selection::all(PODS));
    let nodes = setup.informer(Selection::all(NODES));
    pods.index_by(index::NODE);
    let limited = context.options.terminated_pod_gc_threshold > 0;
    if limited {
        pods.index_by(ENDED);
    }
    let (queue, there) = (context.queue.clone(), nodes.store().clone());
    pods.on_change(move |change| {
        if change.new.as_deref().is_some_and(|pod| needs_check(pod, &there)) {
            queue.add(change.key.clone());
        }
        if limited && change.new.as_deref().is_some_and(plan::has_ended) {
            queue.add_after(Key::from(COUNT), PERIOD);
        }
    });
    let (queue, on) = (context.queue.clone(), pods.store().clone());
    nodes.on_change(move |change| {
        on.find_keys(index::NODE, &change.key).into_iter().for_each(|key| queue.add(key));
    });
    let (pods, nodes) = (pods.store().clone(), nodes.store().clone());
    Some(Box::new(Controller { pods, nodes, context: context.clone(), missing: Mutex::default() }))
}

/// Most pods are on an existing node and need no check.
fn needs_check(pod: &Tree, nodes: &Store) -> bool {
    let node = pod.str("spec.nodeName");
    pod.at("metadata").has("deletionTimestamp") || (!node.is_empty() && nodes.object(node).is_none())
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        if key == COUNT {
            return self.sync_count().await;
        }
        let Some(pod) = self.pods.get(key) else { return Ok(Outcome::Done) };
        let name = pod.str("spec.nodeName");
        let node = self.nodes.get(name);
        let node = match &node {
            _ if name.is_empty() => Node::None,
            Some(node) => {
                self.missing().remove(name);
                Node::There(node)
            }
            None => match self.wait_for(name).await? {
                Some(left) => return Ok(Outcome::RequeueAfter(left)),
                None => Node::Gone,
            },
        };
        let reason = match node {
            Node::None => "unscheduled",
            Node::There(_) => "out-of-service",
            Node::Gone => "orphaned",
        };
        match plan::plan(&pod, node, self.context.clock.now()) {
            Plan::Keep => Ok(Outcome::Done),
            Plan::Delete { status } => self.delete(&pod, status, reason).await.map(|()| Outcome::Done),
        }
    }

    fn missing(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<String, i64>> {
        self.missing.lock()
    }

    /// How long to wait for a missing node; after that, the server is queried.
    async fn wait_for(&self, name: &str) -> Result<Option<Duration>> {
        let now = self.context.clock.now();
        let since = {
            let mut missing = self.missing();
            // Entries of deleted nodes expire; at worst their next pod waits once more.
            missing.retain(|_, since| now.seconds - *since < FORGET_SECONDS);
            *missing.entry(name.to_string()).or_insert(now.seconds)
        };
        if let Some(left) = until(now, since + QUARANTINE_SECONDS) {
            return Ok(Some(left));
        }
        match self.context.client.get(NODES, "", name).await {
            Err(error) if error.is_not_found() => Ok(None),
            result => result.map(|_| Some(PERIOD)),
        }
    }

    async fn sync_count(&self) -> Result<Outcome> {
        let limit = usize::try_from(self.context.options.terminated_pod_gc_threshold).unwrap_or(0);
        if self.pods.find_keys(ENDED, "").len() <= limit {
            return Ok(Outcome::Done);
        }
        let gone = plan::too_many(self.pods.find(ENDED, ""), limit);
        let work: Vec<_> = gone.iter().map(|pod| self.delete(pod, None, "terminated")).collect();
        bounded(work).await.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(Outcome::Done)
    }

    async fn delete(&self, pod: &Tree, status: Option<Tree>, reason: &str) -> Result<()> {
        let labels = [pod.str("metadata.namespace"), reason];
        self.context.metrics.count(&metrics::POD_GC_DELETIONS, &labels);
        let result = self.remove(pod, status).await;
        if result.is_err() {
            self.context.metrics.count(&metrics::POD_GC_ERRORS, &labels);
        }
        result
    }

    async fn remove(&self, pod: &Tree, status: Option<Tree>) -> Result<()> {
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        let client = &self.context.client;
        if let Some(status) = status {
            match client.patch(PODS, namespace, name, "status", Patch::Strategic(&status)).await {
                Err(error) if error.is_not_found() => return Ok(()),
                result => drop(result?),
            }
        }
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::of(pod) };
        match client.delete(PODS, namespace, name, options).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
