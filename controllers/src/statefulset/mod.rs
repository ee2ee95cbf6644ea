//! Maintains the pods of a StatefulSet with stable names, claims and order.

mod claim;
mod plan;
mod pod;

use std::sync::Arc;

use api::Tree;
use api::time::Timestamp;
use client::{Client, DeleteOptions, Error, Recorder, Resource, Result, Selection, Store, index};
use stdx::clock::Clock;

use crate::support::family::{self, ParentKind};
use crate::support::{PODS, batch, hash, history, ignore_terminating_namespace, owner, pods, status};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Action, ObservedState, Revision, RevisionChange};

const SETS: Resource = Resource::new("apps", "v1", "statefulsets");
const REVISIONS: Resource = Resource::new("apps", "v1", "controllerrevisions");
const CLAIMS: Resource = Resource::core("persistentvolumeclaims");
const HASH: &str = "controller.kubernetes.io/hash";
const PARENT: ParentKind = ParentKind { kind: "StatefulSet", selector: family::label_selector };

struct Controller {
    sets: Arc<Store>,
    pods: Arc<Store>,
    claims: Arc<Store>,
    revisions: Arc<Store>,
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = |resource| setup.informer(Selection::all(resource));
    let (sets, claims, revisions) = (informer(SETS), informer(CLAIMS), informer(REVISIONS));
    let pods = setup.informer(PODS);
    let queue = context.queue.clone();
    sets.on_change(move |change| queue.add(change.key.clone()));
    PARENT.follow(&pods, sets.store(), &context.queue);
    revisions.index_by(index::CONTROLLER).index_by(family::ORPHANS);
    // A pod may wait until an old claim is deleted.
    let (queue, known) = (context.queue.clone(), sets.store().clone());
    claims.on_change(move |change| {
        let (namespace, name) = client::split(&change.key);
        let keys = claim::sets_of(name).into_iter().map(|set| client::key(namespace, set));
        keys.filter(|key| change.new.is_none() && known.object(key).is_some()).for_each(|key| queue.add(key));
    });
    Some(Box::new(Controller {
        sets: sets.store().clone(),
        pods: pods.store().clone(),
        claims: claims.store().clone(),
        revisions: revisions.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
    }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(set) = self.sets.get(key) else { return Ok(Outcome::Done) };
        let mut revisions = self.claim_revisions(&set).await?;
        let mut pods = self.claim_pods(&set).await?;
        let (update, collisions) = self.newest_revision(&set, &revisions).await?;
        let named = |name: &str| revisions.iter().find(|revision| revision.str("metadata.name") == name);
        let current = named(set.str("status.currentRevision")).unwrap_or(&update).clone();
        let now = self.clock.now();
        let phases = self.decide(&set, &pods, [&current, &update], now);
        let result = self.execute(&set, phases, &mut pods).await;
        let names = [current.str("metadata.name"), update.str("metadata.name")];
        status::write(&self.client, SETS, &set, plan::status(&set, &pods, names, collisions, now)).await?;
        result?;
        revisions.retain(|revision| !names.contains(&revision.str("metadata.name")));
        self.truncate(&set, &revisions, &pods).await?;
        Ok(plan::next_available(&set, &pods, now).map_or(Outcome::Done, Outcome::RequeueAfter))
    }

    fn decide(&self, set: &Tree, pods: &[Arc<Tree>], revisions: [&Tree; 2], now: Timestamp) -> plan::Phases {
        let namespace = set.str("metadata.namespace");
        plan::plan(&ObservedState {
            set,
            pods,
            claim: &|name| self.claims.get(&client::key(namespace, name)),
            current: Revision::of(revisions[0]),
            update: Revision::of(revisions[1]),
            now,
        })
    }

    async fn claim_pods(&self, set: &Tree) -> Result<Vec<Arc<Tree>>> {
        let mut candidates = family::candidates(&self.pods, set);
        candidates.retain(|candidate| pod::is_member(set, candidate));
        let claim = owner::claim(set, &family::label_selector(set), candidates);
        owner::execute(&self.client, SETS, set, PODS.resource, claim).await
    }

    async fn claim_revisions(&self, set: &Tree) -> Result<Vec<Arc<Tree>>> {
        let mut claim = owner::claim(set, &family::label_selector(set), family::candidates(&self.revisions, set));
        claim.release.clear();
        let mut revisions = owner::execute(&self.client, SETS, set, REVISIONS, claim).await?;
        history::sort(&mut revisions);
        Ok(revisions)
    }

    /// The revision of the current template, created if missing, and the collision count.
    async fn newest_revision(&self, set: &Tree, revisions: &[Arc<Tree>]) -> Result<(Arc<Tree>, i64)> {
        let mut collisions = set.int("status.collisionCount").unwrap_or_default();
        let namespace = set.str("metadata.namespace");
        let number = match plan::newest(set, revisions) {
            RevisionChange::Keep(revision) => return Ok((revision, collisions)),
            RevisionChange::Renumber(revision) => {
                let name = revision.str("metadata.name");
                let revision = self.client.update(REVISIONS, namespace, name, &revision).await?;
                return Ok((Arc::new(revision), collisions));
            }
            RevisionChange::Create(number) => number,
        };
        let data = history::data(set.at("spec.template"));
        loop {
            let revision = history::build(set, number, HASH, &hash::revision_hash(&data, collisions));
            match self.client.create(REVISIONS, namespace, &revision).await {
                Err(error) if error.is_already_exists() => {
                    let there = self.client.get(REVISIONS, namespace, revision.str("metadata.name")).await?;
                    if history::has_template(&there, set.at("spec.template")) {
                        return Ok((Arc::new(there), collisions));
                    }
                    collisions += 1;
                }
                result => return Ok((Arc::new(result?), collisions)),
            }
        }
    }

    async fn truncate(&self, set: &Tree, revisions: &[Arc<Tree>], pods: &[Arc<Tree>]) -> Result<()> {
        let is_live = |revision: &Tree| pods.iter().any(|pod| pod::revision(pod) == revision.str("metadata.name"));
        for revision in history::surplus(revisions, history::limit(set), is_live) {
            let (namespace, name) = (set.str("metadata.namespace"), revision.str("metadata.name"));
            match self.client.delete(REVISIONS, namespace, name, DeleteOptions::of(&revision)).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Executes the phases in order; `pods` is updated to the result.
    async fn execute(&self, set: &Tree, phases: plan::Phases, pods: &mut Vec<Arc<Tree>>) -> Result<()> {
        for phase in phases {
            let done = stdx::sync::Mutex::new(Vec::new());
            let act = |at: usize| {
                let (action, done) = (&phase[at], &done);
                async move {
                    let change = self.act(set, action).await?;
                    done.lock().push(change);
                    Ok(())
                }
            };
            let (_, error) = batch::slow_start(phase.len(), act).await;
            let changes = done.into_inner();
            changes.into_iter().for_each(|change| change.apply(pods));
            error.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    async fn act(&self, set: &Tree, action: &Action) -> Result<PodChange> {
        let namespace = set.str("metadata.namespace");
        match action {
            Action::Create { pod, claims } => {
                self.create_claims(set, pod, claims).await?;
                let made = self.client.create(PODS.resource, namespace, pod).await;
                if !made.as_ref().is_err_and(Error::is_already_exists) {
                    self.record_event(set, "Create", pod.str("metadata.name"), made.as_ref().err());
                }
                made.map(PodChange::Created)
            }
            Action::CreateClaims { pod, claims } => {
                self.create_claims(set, pod, claims).await.map(|()| PodChange::Nothing)
            }
            Action::Delete(pod) => self.delete(set, pod).await,
            Action::Update(pod) => {
                let name = pod.str("metadata.name");
                let updated = self.client.update(PODS.resource, namespace, name, pod).await;
                self.record_event(set, "Update", name, updated.as_ref().err());
                updated.map(PodChange::Created)
            }
            Action::UpdateClaim(claim) => {
                let name = claim.str("metadata.name");
                self.client.update(CLAIMS, namespace, name, claim).await.map(|_| PodChange::Nothing)
            }
            Action::Refuse { pod, message } => {
                self.record_event(set, "Create", pod, Some(&Error::failed(message.clone())));
                Ok(PodChange::Nothing)
            }
        }
    }

    async fn delete(&self, set: &Tree, pod: &Tree) -> Result<PodChange> {
        let (namespace, name) = (pod.str("metadata.namespace"), pod.str("metadata.name"));
        let gone = || PodChange::Deleted(pod.str("metadata.uid").to_string());
        match self.client.delete(PODS.resource, namespace, name, DeleteOptions::of(pod)).await {
            Err(error) if error.is_not_found() => Ok(gone()),
            result => {
                self.record_event(set, "Delete", name, result.as_ref().err());
                result.map(|left| if pods::is_ending(&left) { PodChange::Created(left) } else { gone() })
            }
        }
    }

    async fn create_claims(&self, set: &Tree, pod: &Tree, claims: &[Tree]) -> Result<()> {
        let (set_name, pod_name) = (set.str("metadata.name"), pod.str("metadata.name"));
        for claim in claims {
            let name = claim.str("metadata.name");
            match self.client.create(CLAIMS, set.str("metadata.namespace"), claim).await {
                Ok(_) => {
                    let message = format!("Create Claim {name} Pod {pod_name} in StatefulSet {set_name} success");
                    self.recorder.normal(set, "SuccessfulCreate", message);
                }
                Err(error) if error.is_already_exists() => {}
                Err(error) => {
                    let text = error.message();
                    let what = format!("Create Claim {name} for Pod {pod_name} in StatefulSet {set_name}");
                    self.recorder.warning(set, "FailedCreate", format!("{what} failed error: {text}"));
                    let error = Error::failed(format!("failed to create PVC {name}: {text}"));
                    self.record_event(set, "Create", pod_name, Some(&error));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn record_event(&self, set: &Tree, verb: &str, pod: &str, error: Option<&Error>) {
        let what = format!("{verb} Pod {pod} in StatefulSet {}", set.str("metadata.name"));
        match error {
            None => self.recorder.normal(set, &format!("Successful{verb}"), format!("{what} successful")),
            Some(error) => {
                let message = format!("{what} failed error: {}", error.message());
                self.recorder.warning(set, &format!("Failed{verb}"), message);
            }
        }
    }
}

/// The effect of an action on the observed pods.
enum PodChange {
    Nothing,
    /// A pod was created or changed.
    Created(Tree),
    /// The pod with this uid was deleted.
    Deleted(String),
}

impl PodChange {
    fn apply(self, pods: &mut Vec<Arc<Tree>>) {
        let drop_old = |pods: &mut Vec<Arc<Tree>>, uid: &str| pods.retain(|pod| pod.str("metadata.uid") != uid);
        match self {
            PodChange::Nothing => {}
            PodChange::Created(pod) => {
                drop_old(pods, pod.str("metadata.uid"));
                pods.push(Arc::new(pod));
            }
            PodChange::Deleted(uid) => drop_old(pods, &uid),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async { ignore_terminating_namespace(self.sync(key).await) })
    }
}
