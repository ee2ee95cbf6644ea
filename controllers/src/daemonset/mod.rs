//! Runs one pod of a DaemonSet on each eligible node.

mod backoff;
mod history;
mod plan;
mod pod;

use std::sync::Arc;

use api::Tree;
use client::{Change, Resource, Result, Selection, Store, index};
use stdx::clock::Clock;
use stdx::sync::Mutex;

use crate::support::family::{self, ParentKind};
use crate::support::pod_control::PodControl;
use crate::support::{PODS, ignore_terminating_namespace, owner, pods, status};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use backoff::Backoff;
use plan::{FinishedPod, ObservedState, Plan};

const SETS: Resource = Resource::new("apps", "v1", "daemonsets");
const REVISIONS: Resource = Resource::new("apps", "v1", "controllerrevisions");
const NODES: Selection = Selection::all(Resource::core("nodes"));
const PARENT: ParentKind = ParentKind { kind: "DaemonSet", selector: family::label_selector };

struct Controller {
    sets: Arc<Store>,
    pods: Arc<Store>,
    nodes: Arc<Store>,
    revisions: Arc<Store>,
    control: PodControl,
    clock: Arc<dyn Clock>,
    backoff: Mutex<Backoff>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = |resource| setup.informer(Selection::all(resource));
    let (sets, revisions, nodes) = (informer(SETS), informer(REVISIONS), setup.informer(NODES));
    let pods = setup.informer(PODS);
    let queue = context.queue.clone();
    sets.on_change(move |change| queue.add(change.key.clone()));
    PARENT.follow(&pods, sets.store(), &context.queue);
    revisions.index_by(index::CONTROLLER).index_by(family::ORPHANS);
    let (queue, known) = (context.queue.clone(), sets.store().clone());
    nodes.on_change(move |change| {
        if moves_pods(change) {
            known.keys().into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        sets: sets.store().clone(),
        pods: pods.store().clone(),
        nodes: nodes.store().clone(),
        revisions: revisions.store().clone(),
        control: PodControl { client: context.client.clone(), recorder: context.recorder.clone() },
        clock: context.clock.clone(),
        backoff: Mutex::default(),
    }))
}

/// Whether a node change can affect where pods run; heartbeats cannot.
fn moves_pods(change: &Change) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    ["metadata.labels", "spec.taints"].iter().any(|field| old.at(field) != new.at(field))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(set) = self.sets.get(key) else { return Ok(Outcome::Done) };
        if pods::is_terminating(&set) {
            return Ok(Outcome::Done);
        }
        let mut pods = self.claim_pods(&set).await?;
        let (hash, old) = self.revise(&set, &mut pods).await?;
        let nodes = self.nodes.all();
        let fits = pod::fits(&set, &nodes);
        let now = self.clock.now();
        let observed = ObservedState { set: &set, nodes: &nodes, fits: &fits, pods: &pods, hash: &hash, now };
        let plan = plan::plan(&observed, |node| self.wait(&set, node));
        let again = plan.again;
        let result = self.execute(&set, plan, &hash, &mut pods).await;
        let observed = ObservedState { set: &set, nodes: &nodes, fits: &fits, pods: &pods, hash: &hash, now };
        status::write(&self.control.client, SETS, &set, plan::status(&observed)).await?;
        result?;
        self.truncate(&set, &old, &pods).await?;
        Ok(again.map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    async fn claim_pods(&self, set: &Tree) -> Result<Vec<Arc<Tree>>> {
        let claim = owner::claim(set, &family::label_selector(set), family::candidates(&self.pods, set));
        owner::execute(&self.control.client, SETS, set, PODS.resource, claim).await
    }

    /// The remaining backoff for a failed pod on the node.
    fn wait(&self, set: &Tree, node: &str) -> Option<std::time::Duration> {
        let generation = set.int("status.observedGeneration").unwrap_or_default();
        let key = format!("{}/{generation}/{node}", set.str("metadata.uid"));
        self.backoff.lock().wait(&key, self.clock.now())
    }

    /// Deletes and creates pods; `pods` is updated to the result.
    async fn execute(&self, set: &Tree, plan: Plan, hash: &str, pods: &mut Vec<Arc<Tree>>) -> Result<()> {
        plan.ended.iter().for_each(|ended| self.record_ended(set, ended));
        let deleted = self.control.delete(set, &plan.delete).await;
        deleted.take_from(pods);
        pods.extend(deleted.ending);
        let build = |at: usize| pod::build(set, &plan.create[at], hash);
        let (made, error) = self.control.create(set, plan.create.len(), build).await;
        pods.extend(made);
        deleted.error.or(error).map_or(Ok(()), Err)
    }

    fn record_ended(&self, set: &Tree, ended: &FinishedPod) {
        let metadata = ended.pod.at("metadata");
        let (namespace, name, node) = (metadata.str("namespace"), metadata.str("name"), &ended.node);
        let recorder = &self.control.recorder;
        if ended.failed {
            let message = format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
            recorder.warning(set, "FailedDaemonPod", message);
        } else {
            let message =
                format!("Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it");
            recorder.normal(set, "SucceededDaemonPod", message);
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async { ignore_terminating_namespace(self.sync(key).await) })
    }
}
