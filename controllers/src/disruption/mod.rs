//! Maintains the status of PodDisruptionBudgets, and clears stale DisruptionTarget conditions.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Change, Key, Patch, Resource, Result, Selection, Store, index};

use crate::support::done_if_not_found;
use crate::support::kinds::Kinds;
use crate::support::owner::controller_of;
use crate::support::selecting::{SELECTOR, selecting, selector_of};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::StaleCondition;

const BUDGETS: Resource = Resource::new("policy", "v1", "poddisruptionbudgets");
const PODS: Resource = Resource::core("pods");
const REPLICA_SETS: Resource = Resource::new("apps", "v1", "replicasets");
/// The built-in scalable kinds, by apiVersion and kind.
const SCALED: [(&str, &str, Resource); 4] = [
    ("v1", "ReplicationController", Resource::core("replicationcontrollers")),
    ("apps/v1", "Deployment", Resource::new("apps", "v1", "deployments")),
    ("apps/v1", "ReplicaSet", REPLICA_SETS),
    ("apps/v1", "StatefulSet", Resource::new("apps", "v1", "statefulsets")),
];
/// Prefix of the keys of pods with a DisruptionTarget condition.
const POD: &str = "pod:";
/// Pod changes are batched for this long, so that a budget with many pods is reconciled less often.
const GATHER: Duration = Duration::from_millis(50);

struct Controller {
    budgets: Arc<Store>,
    pods: Arc<Store>,
    scaled: Vec<Arc<Store>>,
    kinds: Kinds,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let budgets = setup.informer(Selection::all(BUDGETS));
    let pods = setup.informer(Selection::all(PODS));
    budgets.index_by(SELECTOR);
    pods.index_by(index::LABELS);
    let queue = context.queue.clone();
    budgets.on_change(move |change| queue.add(change.key.clone()));
    let (queue, chosen) = (context.queue.clone(), budgets.store().clone());
    pods.on_change(move |change| {
        keys(&chosen, change).into_iter().for_each(|key| queue.add_after(key, GATHER));
        if change.new.as_deref().is_some_and(is_disrupted) {
            queue.add(Key::from(format!("{POD}{}", change.key)));
        }
    });
    let scaled = SCALED.map(|(_, _, resource)| setup.informer(Selection::all(resource)).store().clone()).to_vec();
    let (budgets, pods) = (budgets.store().clone(), pods.store().clone());
    let context = Context { recorder: context.recorder.named("controllermanager"), ..context.clone() };
    Some(Box::new(Controller { budgets, pods, scaled, kinds: Kinds::default(), context }))
}

/// The budgets that match the pod now or matched it before.
fn keys(budgets: &Store, change: &Change) -> BTreeSet<Key> {
    let pods = [change.old.as_deref(), change.new.as_deref()];
    pods.into_iter().flatten().flat_map(|pod| selecting(budgets, pod)).collect()
}

fn is_disrupted(pod: &Tree) -> bool {
    crate::support::conditions::is_true(pod, "DisruptionTarget")
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        if let Some(pod) = key.strip_prefix(POD) {
            return self.sync_pod(pod).await;
        }
        let Some(budget) = self.budgets.get(key) else { return Ok(Outcome::Done) };
        let pods = self.pods.select(budget.str("metadata.namespace"), &selector_of(&budget));
        if pods.is_empty() {
            self.context.recorder.normal(&budget, "NoPods", "No matching pods found");
        }
        let scale = if plan::needs_scale(&budget) { self.scale(&pods).await? } else { Ok(0) };
        let now = self.context.clock.now();
        match plan::plan(&budget, &pods, || scale, now) {
            Ok(plan) => {
                if plan::needs_scale(&budget) && pods.iter().any(|pod| controller_of(pod).is_none()) {
                    self.context.recorder.warning(&budget, "UnmanagedPods", plan::unmanaged(&budget));
                }
                self.record_not_deleted(&budget, &plan.not_deleted);
                self.write(&budget, plan.status).await?;
                Ok(plan.again.map_or(Outcome::Done, Outcome::RequeueAfter))
            }
            Err(why) => {
                let text = format!("Failed to calculate the number of expected pods: {why}");
                self.context.recorder.warning(&budget, "CalculateExpectedPodCountFailed", text);
                self.write(&budget, plan::fail(&budget, &why.to_string(), now)).await?;
                Err(client::Error::failed(why))
            }
        }
    }

    fn record_not_deleted(&self, budget: &Tree, pods: &[Arc<Tree>]) {
        let (namespace, name) = (budget.str("metadata.namespace"), budget.str("metadata.name"));
        for pod in pods {
            let text = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
            self.context.recorder.warning(pod, "NotDeleted", text);
        }
    }

    /// An unchanged status is not written.
    async fn write(&self, budget: &Tree, status: Tree) -> Result<()> {
        if *budget.at("status") == status {
            return Ok(());
        }
        let mut changed = budget.clone();
        changed.set("status", status);
        let (namespace, name) = (budget.str("metadata.namespace"), budget.str("metadata.name"));
        self.context.client.update_status(BUDGETS, namespace, name, &changed).await.map(|_| ())
    }

    /// The total scale of the pods' controllers; pods without a controller are not counted.
    async fn scale(&self, pods: &[Arc<Tree>]) -> Result<plan::Scale> {
        let mut scales: BTreeMap<String, i64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for pod in pods {
            let Some(reference) = controller_of(pod) else { continue };
            if !seen.insert(reference.str("uid").to_string()) {
                continue;
            }
            let found = match self.scale_in_memory(pod.str("metadata.namespace"), reference) {
                Some(found) => Ok(Some(found)),
                None => self.scale_of_other(pod.str("metadata.namespace"), reference).await?,
            };
            match found {
                Ok(Some((uid, replicas))) => drop(scales.insert(uid, replicas)),
                Ok(None) => return Ok(Err(plan::Error::NoController(pod.str("metadata.name").to_string()))),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(scales.values().sum()))
    }

    /// The scale of a built-in controller; for a ReplicaSet of a Deployment, that of the Deployment.
    fn scale_in_memory(&self, namespace: &str, reference: &Tree) -> Option<(String, i64)> {
        let at = SCALED.iter().position(|(_, kind, resource)| {
            let group = reference.str("apiVersion").split_once('/').map_or("", |(group, _)| group);
            *kind == reference.str("kind") && resource.group == group
        })?;
        let object = self.scaled[at].get(&client::key(namespace, reference.str("name")))?;
        if object.str("metadata.uid") != reference.str("uid") {
            return None;
        }
        if SCALED[at].2 == REPLICA_SETS
            && let Some(deployment) = controller_of(&object).filter(|owner| owner.str("kind") == "Deployment")
        {
            return self.scale_in_memory(namespace, deployment);
        }
        Some((object.str("metadata.uid").to_string(), object.int("spec.replicas").unwrap_or(1)))
    }

    /// The scale of any other controller, from its scale subresource.
    async fn scale_of_other(
        &self,
        namespace: &str,
        reference: &Tree,
    ) -> Result<std::result::Result<Option<(String, i64)>, plan::Error>> {
        let (api_version, kind) = (reference.str("apiVersion"), reference.str("kind"));
        let Some(served) = self.kinds.find(&self.context.client, api_version, kind).await? else { return Ok(Ok(None)) };
        if !served.scales {
            let (plural, group) = (served.resource.plural, served.resource.group);
            let dot = if group.is_empty() { "" } else { "." };
            return Ok(Err(plan::Error::NotScalable(format!("{plural}{dot}{group}"))));
        }
        match self.context.client.get_subresource(served.resource, namespace, reference.str("name"), "scale").await {
            Err(error) if error.is_not_found() => Ok(Ok(None)),
            result => {
                let scale = result?;
                let is_it = scale.str("metadata.uid") == reference.str("uid");
                let found = (reference.str("uid").to_string(), scale.int("spec.replicas").unwrap_or(0));
                Ok(Ok(is_it.then_some(found)))
            }
        }
    }

    async fn sync_pod(&self, key: &str) -> Result<Outcome> {
        let Some(pod) = self.pods.get(key) else { return Ok(Outcome::Done) };
        match plan::stale(&pod, self.context.clock.now()) {
            StaleCondition::No => Ok(Outcome::Done),
            StaleCondition::Wait(left) => Ok(Outcome::RequeueAfter(left)),
            StaleCondition::Patch(patch) => {
                let (namespace, name) = client::split(key);
                done_if_not_found(
                    self.context.client.patch(PODS, namespace, name, "status", Patch::Strategic(&patch)).await,
                )
            }
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
