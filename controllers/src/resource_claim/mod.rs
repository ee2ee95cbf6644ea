//! Creates the resource claims of pods from their templates, and deallocates claims that no pod uses any more.

mod plan;

use std::sync::Arc;

use api::Tree;
use client::index::{CONTROLLER, Index};
use client::{
    Change, Client, DeleteOptions, Error, Patch, Queue, Recorder, Resource, Result, Selection, Store, key, split,
};

use crate::support::PODS;
use crate::support::resource_claims::{BY_RESOURCE_CLAIM, CLAIMS, claim_names};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{ClaimPlan, Claims, FINALIZER};

const TEMPLATES: Selection = Selection::all(Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates"));
/// Pods by the keys of the templates that they name.
const BY_TEMPLATE: Index = Index { name: "resourceclaimtemplate", values: templates_of };
/// The field manager of the names in the status of pods.
const MANAGER: &str = "ResourceClaimController";
const POD: &str = "pod:";
const CLAIM: &str = "claim:";

struct Controller {
    pods: Arc<Store>,
    claims: Arc<Store>,
    templates: Arc<Store>,
    client: Client,
    recorder: Recorder,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let (pods, claims, templates) = (setup.informer(PODS), setup.informer(CLAIMS), setup.informer(TEMPLATES));
    pods.index_by(BY_RESOURCE_CLAIM);
    pods.index_by(BY_TEMPLATE);
    claims.index_by(CONTROLLER);
    let queue = context.queue.clone();
    pods.on_change(move |change| enqueue_pod(&queue, change));
    let (store, queue) = (pods.store().clone(), context.queue.clone());
    claims.on_change(move |change| {
        if change.new.is_some() {
            queue.add(prefixed(CLAIM, &change.key));
        }
        store.find_keys(BY_RESOURCE_CLAIM, &change.key).iter().for_each(|key| queue.add(prefixed(POD, key)));
    });
    let (store, queue) = (pods.store().clone(), context.queue.clone());
    templates.on_change(move |change| {
        if change.new.is_some() {
            store.find_keys(BY_TEMPLATE, &change.key).iter().for_each(|key| queue.add(prefixed(POD, key)));
        }
    });
    Some(Box::new(Controller {
        pods: pods.store().clone(),
        claims: claims.store().clone(),
        templates: templates.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("resource_claim"),
    }))
}

fn prefixed(prefix: &str, key: &str) -> client::Key {
    client::Key::from(format!("{prefix}{key}"))
}

fn templates_of(pod: &Tree) -> Vec<String> {
    let namespace = pod.str("metadata.namespace");
    let names =
        pod.list("spec.resourceClaims").iter().filter_map(|claim| claim.at("resourceClaimTemplateName").as_str());
    names.map(|name| key(namespace, name).to_string()).collect()
}

/// A pod may need its claims; one that will not run any more frees them.
fn enqueue_pod(queue: &Queue, change: &Change) {
    let Some(pod) = change.new.as_deref().or(change.old.as_deref()) else { return };
    let has_extended = pod.get("status").is_some_and(|status| status.has("extendedResourceClaimStatus"));
    if pod.list("spec.resourceClaims").is_empty() && !has_extended {
        return;
    }
    let is_deleted = change.new.is_none();
    if is_deleted || !plan::may_run(pod) {
        let namespace = pod.str("metadata.namespace");
        claim_names(pod).for_each(|name| queue.add(prefixed(CLAIM, &key(namespace, name))));
    }
    if !is_deleted {
        queue.add(prefixed(POD, &change.key));
    }
}

/// The claims of one pod.
struct ClaimsOfPod<'a> {
    controller: &'a Controller,
    namespace: &'a str,
    uid: &'a str,
}

impl Claims for ClaimsOfPod<'_> {
    fn claim(&self, name: &str) -> Option<Arc<Tree>> {
        self.controller.claims.get(&key(self.namespace, name))
    }

    fn template(&self, name: &str) -> Option<Arc<Tree>> {
        self.controller.templates.get(&key(self.namespace, name))
    }

    fn owned(&self) -> Vec<Arc<Tree>> {
        self.controller.claims.find(CONTROLLER, self.uid)
    }
}

impl Controller {
    async fn sync_pod(&self, pod_key: &str) -> Result<Outcome> {
        let Some(pod) = self.pods.get(pod_key) else { return Ok(Outcome::Done) };
        let (namespace, name) = split(pod_key);
        let plan = plan::plan_pod(&pod, &ClaimsOfPod { controller: self, namespace, uid: pod.str("metadata.uid") });
        let mut found = plan.found;
        for (pod_claim, claim) in &plan.create {
            let created = self.client.create(CLAIMS.resource, namespace, claim).await;
            let created = created.inspect_err(|error| {
                let text = format!("PodResourceClaim {pod_claim}: create ResourceClaim : {}", error.message());
                self.recorder.warning(&pod, "FailedResourceClaimCreation", text);
            })?;
            found.push((pod_claim.clone(), created.str("metadata.name").to_string()));
        }
        if !found.is_empty() {
            let object = plan::status_patch(&pod, &found);
            let patch = Patch::Apply { object: &object, manager: MANAGER, force: true };
            self.client.patch(PODS.resource, namespace, name, "status", patch).await?;
        }
        if let Some(error) = plan.error {
            self.recorder.warning(&pod, "FailedResourceClaimCreation", error.to_string());
            return Err(Error::failed(error));
        }
        for claim in plan.reserve {
            self.reserve(&claim, &pod).await?;
        }
        Ok(Outcome::Done)
    }

    async fn reserve(&self, claim: &Tree, pod: &Tree) -> Result<()> {
        let mut claim = claim.clone();
        let (name, uid) = (pod.str("metadata.name"), pod.str("metadata.uid"));
        let mut consumers = claim.list("status.reservedFor").to_vec();
        consumers.push(api::tree! { "resource" => "pods", "name" => name, "uid" => uid });
        claim.child("status").set("reservedFor", consumers);
        let namespace = pod.str("metadata.namespace");
        self.client.update_status(CLAIMS.resource, namespace, claim.str("metadata.name"), &claim).await.map(drop)
    }

    async fn sync_claim(&self, claim_key: &str) -> Result<Outcome> {
        let Some(claim) = self.claims.get(claim_key) else { return Ok(Outcome::Done) };
        let (namespace, name) = split(claim_key);
        let unknown = self.find_unknown_pods(namespace, &claim).await?;
        let find = |name: &str| {
            let is_named = |pod: &&Arc<Tree>| pod.str("metadata.name") == name;
            self.pods.get(&key(namespace, name)).or_else(|| unknown.iter().find(is_named).cloned())
        };
        let plan = plan::plan_unused(&claim, find);
        let current = self.write(namespace, name, &claim, &plan).await?;
        if plan.delete {
            match self.client.delete(CLAIMS.resource, namespace, name, DeleteOptions::of(&current)).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(Outcome::Done)
    }

    /// Pods that use a claim and are not observed yet: only the API server knows whether they exist.
    async fn find_unknown_pods(&self, namespace: &str, claim: &Tree) -> Result<Vec<Arc<Tree>>> {
        let mut found = Vec::new();
        for consumer in claim.list("status.reservedFor").iter().filter(|consumer| consumer.str("resource") == "pods") {
            let name = consumer.str("name");
            if self.pods.get(&key(namespace, name)).is_none() {
                match self.client.get(PODS.resource, namespace, name).await {
                    Ok(pod) => found.push(Arc::new(pod)),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// Updates fail if the claim has changed meanwhile: then it is planned again.
    async fn write(&self, namespace: &str, name: &str, claim: &Tree, plan: &ClaimPlan) -> Result<Tree> {
        let mut claim = claim.clone();
        if let Some(consumers) = &plan.reserved_for {
            claim.child("status").set("reservedFor", consumers.clone());
        }
        if plan.deallocate {
            claim.child("status").remove("allocation");
        }
        if plan.deallocate || plan.reserved_for.is_some() {
            claim = self.client.update_status(CLAIMS.resource, namespace, name, &claim).await?;
        }
        if plan.remove_finalizer {
            let others = claim.list("metadata.finalizers").iter().filter(|one| one.as_str() != Some(FINALIZER));
            let others: Vec<Tree> = others.cloned().collect();
            claim.child("metadata").set("finalizers", others);
            claim = self.client.update(CLAIMS.resource, namespace, name, &claim).await?;
        }
        Ok(claim)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async move {
            match (key.strip_prefix(POD), key.strip_prefix(CLAIM)) {
                (Some(key), _) => self.sync_pod(key).await,
                (_, Some(key)) => self.sync_claim(key).await,
                (None, None) => Ok(Outcome::Done),
            }
        })
    }
}
