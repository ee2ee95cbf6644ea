//! Deletes pods that do not tolerate the NoExecute taints of their node, immediately or after `tolerationSeconds`.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::index::NODE;
use client::{Change, DeleteOptions, Patch, Resource, Result, Selection, Store, split};
use stdx::sync::Mutex;

use crate::metrics;
use crate::support::pods;
use crate::support::taints::{NO_EXECUTE, with_effect};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::TolerationTime;

const PODS: Resource = Resource::core("pods");
const NODES: Resource = Resource::core("nodes");
const REASON: &str = "TaintManagerEviction";

struct Controller {
    pods: Arc<Store>,
    nodes: Arc<Store>,
    /// Since when each pod is on a node with taints that it tolerates temporarily.
    since: Mutex<BTreeMap<String, TaintStart>>,
    context: Context,
}

#[derive(Clone, PartialEq)]
struct TaintStart {
    uid: String,
    start: Duration,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let (pods, nodes) = (setup.informer(Selection::all(PODS)), setup.informer(Selection::all(NODES)));
    pods.index_by(NODE);
    let queue = context.queue.clone();
    pods.on_change(move |change| {
        if is_relevant(change) {
            queue.add(change.key.clone());
        }
    });
    let (queue, on_node) = (context.queue.clone(), pods.store().clone());
    nodes.on_change(move |change| {
        if taints(change.old.as_deref()) != taints(change.new.as_deref()) {
            on_node.find_keys(NODE, &change.key).into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        pods: pods.store().clone(),
        nodes: nodes.store().clone(),
        since: Mutex::default(),
        context: context.clone(),
    }))
}

/// Whether a change of a pod is relevant.
fn is_relevant(change: &Change) -> bool {
    let part =
        |pod: Option<&Tree>| pod.map(|pod| (pod.str("spec.nodeName").to_string(), pod.at("spec.tolerations").clone()));
    part(change.old.as_deref()) != part(change.new.as_deref())
}

fn taints(node: Option<&Tree>) -> Vec<Tree> {
    node.into_iter().flat_map(|node| with_effect(node, NO_EXECUTE)).cloned().collect()
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let pod = self.pods.get(key);
        let node = pod.as_deref().and_then(|pod| self.nodes.get(pod.str("spec.nodeName")));
        let Some(pod) = pod.filter(|pod| !pods::is_terminating(pod)) else {
            self.cancel(key);
            return Ok(Outcome::Done);
        };
        let left = match plan::toleration_time(&pod, node.as_deref()) {
            TolerationTime::Forever => {
                self.cancel(key);
                return Ok(Outcome::Done);
            }
            TolerationTime::No => Duration::ZERO,
            TolerationTime::For(time) => self.left(key, &pod, time),
        };
        if left.is_zero() { self.evict(key, &pod).await } else { Ok(Outcome::RequeueAfter(left)) }
    }

    /// The remaining toleration time, counted from when the pod was first observed with the taints.
    fn left(&self, key: &str, pod: &Tree, time: Duration) -> Duration {
        let now = self.context.now();
        let uid = pod.str("metadata.uid");
        let mut since = self.since.lock();
        let begun = since.get(key).filter(|since| since.uid == uid).cloned();
        let begun = begun.unwrap_or_else(|| TaintStart { uid: uid.to_string(), start: now });
        let left = (begun.start + time).saturating_sub(now);
        since.insert(key.to_string(), begun);
        left
    }

    fn cancel(&self, key: &str) {
        let was_due = self.since.lock().remove(key).is_some();
        if was_due {
            self.context.recorder.normal(&event_reference(key), REASON, format!("Cancelling deletion of Pod {key}"));
        }
    }

    async fn evict(&self, key: &str, pod: &Tree) -> Result<Outcome> {
        let begun = tokio::time::Instant::now();
        self.context.recorder.normal(&event_reference(key), REASON, format!("Marking for deletion Pod {key}"));
        match self.delete(key, pod).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                // Removed only after success, so that a failed deletion is retried without another waiting period.
                self.since.lock().remove(key);
                self.context.metrics.count(&metrics::TAINT_DELETIONS, &[]);
                self.context.metrics.record(&metrics::TAINT_DELETION_DURATION, &[], begun.elapsed().as_secs_f64());
                Ok(Outcome::Done)
            }
        }
    }

    /// Both requests have the pod's uid: another pod of this name is not affected.
    async fn delete(&self, key: &str, pod: &Tree) -> Result<()> {
        let (namespace, name) = split(key);
        let client = &self.context.client;
        if let Some(patch) = plan::disruption(pod, self.context.now_seconds()) {
            client.patch(PODS, namespace, name, "status", Patch::Strategic(&patch)).await?;
        }
        client.delete(PODS, namespace, name, DeleteOptions::of(pod)).await.map(drop)
    }
}

/// A reference to the pod for events, since it may be deleted.
fn event_reference(key: &str) -> Tree {
    let (namespace, name) = split(key);
    tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => tree! { "namespace" => namespace, "name" => name } }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
