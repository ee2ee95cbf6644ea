//! Binds claims and volumes. Keys with a slash are claims, keys without are volumes. A single worker processes both: no
//! volume is bound to two claims.

mod counts;
mod plan;

use std::sync::Arc;

use api::Tree;
use client::{Change, Client, Index, Informer, Key, Queue, Recorder, Result, Store, key_of, split};

use crate::support::event_message::{EventDeduplicator, EventMessage};
use crate::support::volumes::{
    BETA_PROVISIONER, BIND_COMPLETED, BY_CLAIM, CLAIMS, CLASSES, PROVISIONER, SELECTED_NODE, VOLUMES, annotation,
    claim_ref, claims_of, class_of, has_annotation, leaves_class_open,
};
use crate::support::{NODES, PODS};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::volume::ReclaimAction;
use plan::{claim, volume, writes};

/// Claims waiting for a volume, by class.
const WAITING: Index =
    Index { name: "waiting", values: |claim| Vec::from_iter(is_waiting(claim).then(|| class_of(claim).into())) };
/// Claims without a class that wait for a default class.
const OPEN: Index = Index {
    name: "open",
    values: |claim| Vec::from_iter((is_waiting(claim) && leaves_class_open(claim)).then(String::new)),
};
/// Claims by the volume that they name.
const NAMING: Index = Index { name: "naming", values: |claim| some(claim.str("spec.volumeName")) };
/// Available volumes, by class.
const FREE: Index =
    Index { name: "free", values: |volume| Vec::from_iter(is_free(volume).then(|| class_of(volume).into())) };
/// Volumes by the claim of their claimRef.
const FOR: Index = Index { name: "for", values: |volume| some(&claim_ref(volume)) };

/// The value, unless it is empty.
fn some(value: &str) -> Vec<String> {
    Vec::from_iter((!value.is_empty()).then(|| value.to_string()))
}

fn is_waiting(claim: &Tree) -> bool {
    !has_annotation(claim, BIND_COMPLETED)
}

fn is_free(volume: &Tree) -> bool {
    volume.at("spec.claimRef").is_null()
}

struct Controller {
    claims: Arc<Store>,
    volumes: Arc<Store>,
    classes: Arc<Store>,
    pods: Arc<Store>,
    nodes: Arc<Store>,
    client: Client,
    recorder: Recorder,
    queue: Arc<Queue>,
    event_recorder: EventDeduplicator,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let [claims, volumes, classes, pods] = [CLAIMS, VOLUMES, CLASSES, PODS].map(|selection| setup.informer(selection));
    claims.index_by(WAITING).index_by(OPEN).index_by(NAMING);
    volumes.index_by(FREE).index_by(FOR);
    pods.index_by(BY_CLAIM);
    follow_claims(&claims, volumes.store(), &context.queue);
    follow_volumes(&volumes, claims.store(), &context.queue);
    follow_classes(&classes, claims.store(), &context.queue);
    follow_pods(&pods, claims.store(), &context.queue);
    let (all_volumes, all_claims) = (volumes.store().clone(), claims.store().clone());
    context
        .metrics
        .on_collect(counts::GAUGES, move |metrics| counts::show(metrics, &all_volumes.all(), &all_claims.all()));
    Some(Box::new(Controller {
        claims: claims.store().clone(),
        volumes: volumes.store().clone(),
        classes: classes.store().clone(),
        pods: pods.store().clone(),
        nodes: setup.informer(NODES).store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named("persistentvolume-controller"),
        queue: context.queue.clone(),
        event_recorder: EventDeduplicator::default(),
    }))
}

/// Queues a claim and the volumes that refer to it.
fn follow_claims(claims: &Informer, volumes: &Arc<Store>, queue: &Arc<Queue>) {
    let (volumes, queue) = (volumes.clone(), queue.clone());
    claims.on_change(move |change| {
        queue.add(change.key.clone());
        volumes.find_keys(FOR, &change.key).into_iter().for_each(|key| queue.add(key));
    });
}

/// Queues a volume, the claims it refers to and that name it, and, if it is available, the claims that wait for one.
fn follow_volumes(volumes: &Informer, claims: &Arc<Store>, queue: &Arc<Queue>) {
    let (claims, queue) = (claims.clone(), queue.clone());
    volumes.on_change(move |change| {
        queue.add(change.key.clone());
        claims.find_keys(NAMING, &change.key).into_iter().for_each(|key| queue.add(key));
        let seen = change.new.as_deref().or(change.old.as_deref());
        let Some(volume) = seen else { return };
        match claim_ref(volume).as_str() {
            "" if becomes_free(change) => add_waiting(&claims, class_of(volume), &queue),
            "" => {}
            claim => queue.add(Key::from(claim)),
        }
    });
}

fn becomes_free(change: &Change) -> bool {
    let can_be_taken = |volume: &Tree| is_free(volume) && volume.str("status.phase") == "Available";
    change.new.as_deref().is_some_and(can_be_taken)
}

fn follow_classes(classes: &Informer, claims: &Arc<Store>, queue: &Arc<Queue>) {
    let (claims, queue) = (claims.clone(), queue.clone());
    classes.on_change(move |change| {
        add_waiting(&claims, &change.key, &queue);
        claims.find_keys(OPEN, "").into_iter().for_each(|key| queue.add(key));
    });
}

fn add_waiting(claims: &Store, class: &str, queue: &Queue) {
    claims.find_keys(WAITING, class).into_iter().for_each(|key| queue.add(key));
}

/// Queues claims that wait for their first consumer.
fn follow_pods(pods: &Informer, claims: &Arc<Store>, queue: &Arc<Queue>) {
    let (claims, queue) = (claims.clone(), queue.clone());
    pods.on_change(move |change| {
        let node = |pod: &Tree| pod.str("spec.nodeName").to_string();
        if change.old.as_deref().map(node) == change.new.as_deref().map(node) {
            return;
        }
        for key in change.new.as_deref().or(change.old.as_deref()).map(claims_of).unwrap_or_default() {
            if claims.get(&key).is_some_and(|claim| is_waiting(&claim)) {
                queue.add(Key::from(key));
            }
        }
    });
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        match (split(key).0, self.claims.get(key), self.volumes.get(key)) {
            ("", _, Some(volume)) => self.sync_volume(&volume).await?,
            ("", _, None) => {}
            (_, Some(claim), _) => self.sync_claim(key, &claim).await?,
            (_, None, _) => self.event_recorder.remove(key),
        }
        Ok(Outcome::Done)
    }

    async fn sync_claim(&self, key: &str, claim: &Tree) -> Result<()> {
        let class = self.classes.get(class_of(claim));
        let mut volumes = self.volumes.find(FOR, key);
        volumes.extend(self.volumes.find(FREE, class_of(claim)));
        let plan = claim::plan(&claim::ObservedState {
            claim,
            named: self.volumes.get(claim.str("spec.volumeName")),
            volumes: &volumes,
            class: class.as_deref(),
            classes: &self.classes.all(),
            pods: &self.pods.find(BY_CLAIM, key),
            node: self.nodes.get(annotation(claim, SELECTED_NODE)),
        });
        match plan {
            claim::Plan::Bind(volume) => self.bind(&volume, claim).await,
            claim::Plan::Wait { phase, event } => self.wait(claim, phase, event).await,
            claim::Plan::SetClass(name) => {
                self.change_claim(claim, |claim| claim.child("spec").set("storageClassName", name)).await
            }
            claim::Plan::SelectNode(node) => self.annotate_claim(claim, &[SELECTED_NODE], &node).await,
            claim::Plan::Provision { provisioner, event } => {
                self.annotate_claim(claim, &[PROVISIONER, BETA_PROVISIONER], &provisioner).await?;
                self.event_recorder.record(&self.recorder, claim, event);
                Ok(())
            }
        }
    }

    async fn annotate_claim(&self, claim: &Tree, keys: &[&str], value: &str) -> Result<()> {
        let set = |claim: &mut Tree| keys.iter().for_each(|key| claim.child("metadata.annotations").set(key, value));
        self.change_claim(claim, set).await
    }

    async fn change_claim(&self, claim: &Tree, change: impl FnOnce(&mut Tree)) -> Result<()> {
        let mut changed = claim.clone();
        change(&mut changed);
        self.write_claim(&changed).await.map(|_| ())
    }

    async fn wait(&self, claim: &Tree, phase: &str, event: Option<EventMessage>) -> Result<()> {
        if let Some(changed) = writes::claim_status(claim, phase, None) {
            self.write_claim_status(&changed).await?;
        }
        match event {
            Some(event) => self.event_recorder.record(&self.recorder, claim, event),
            None => self.event_recorder.remove(&key_of(claim)),
        }
        Ok(())
    }

    /// The volume is written first, since two claims may compete for it.
    async fn bind(&self, volume: &Tree, claim: &Tree) -> Result<()> {
        let mut volume = volume.clone();
        if let Some(changed) = writes::bound_volume(&volume, claim) {
            volume = self.write_volume(&changed).await?;
        }
        if let Some(changed) = writes::volume_phase(&volume, "Bound", "") {
            volume = self.write_volume_status(&changed).await?;
        }
        let mut claim = claim.clone();
        if let Some(changed) = writes::bound_claim(&claim, &volume) {
            claim = self.write_claim(&changed).await?;
        }
        if let Some(changed) = writes::claim_status(&claim, "Bound", Some(&volume)) {
            self.write_claim_status(&changed).await?;
        }
        self.event_recorder.remove(&key_of(&claim));
        Ok(())
    }

    async fn sync_volume(&self, volume: &Tree) -> Result<()> {
        let claim_key = claim_ref(volume);
        let claim = self.claims.get(&claim_key);
        match volume::plan(volume, claim.as_deref()) {
            volume::Plan::Phase(phase) => self.set_phase(volume, phase, "").await.map(|_| ()),
            volume::Plan::LeaveToClaim => {
                self.queue.add(Key::from(claim_key));
                Ok(())
            }
            volume::Plan::Mismatch { volume: of_volume, claim: of_claim } => {
                self.event_recorder.record(&self.recorder, volume, of_volume);
                if let Some(claim) = &claim {
                    self.event_recorder.record(&self.recorder, claim, of_claim);
                }
                Ok(())
            }
            volume::Plan::Unbind => {
                let unbound = self.write_volume(&writes::unbound_volume(volume)).await?;
                self.set_phase(&unbound, "Available", "").await.map(|_| ())
            }
            volume::Plan::Release { missing, reclaim } => self.release(volume, missing, reclaim).await,
        }
    }

    /// A failed volume stays failed.
    async fn release(&self, volume: &Tree, missing: bool, reclaim: ReclaimAction) -> Result<()> {
        let is_released = matches!(volume.str("status.phase"), "Released" | "Failed");
        if missing && !is_released && self.has_claim(volume).await? {
            return Ok(());
        }
        let volume = if is_released { volume.clone() } else { self.set_phase(volume, "Released", "").await? };
        if let ReclaimAction::Fail(event) = reclaim
            && volume.str("status.phase") != "Failed"
        {
            self.set_phase(&volume, "Failed", &event.message).await?;
            event.record(&self.recorder, &volume);
        }
        Ok(())
    }

    /// Asks the server: claims bound by other controllers may be newer than the informer.
    async fn has_claim(&self, volume: &Tree) -> Result<bool> {
        let reference = volume.at("spec.claimRef");
        match self.client.get(CLAIMS.resource, reference.str("namespace"), reference.str("name")).await {
            Ok(claim) => Ok(claim.str("metadata.uid") == reference.str("uid")),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn set_phase(&self, volume: &Tree, phase: &str, message: &str) -> Result<Tree> {
        match writes::volume_phase(volume, phase, message) {
            Some(changed) => self.write_volume_status(&changed).await,
            None => Ok(volume.clone()),
        }
    }

    async fn write_volume(&self, volume: &Tree) -> Result<Tree> {
        self.client.update(VOLUMES.resource, "", volume.str("metadata.name"), volume).await
    }

    async fn write_volume_status(&self, volume: &Tree) -> Result<Tree> {
        self.client.update_status(VOLUMES.resource, "", volume.str("metadata.name"), volume).await
    }

    async fn write_claim(&self, claim: &Tree) -> Result<Tree> {
        let meta = claim.at("metadata");
        self.client.update(CLAIMS.resource, meta.str("namespace"), meta.str("name"), claim).await
    }

    async fn write_claim_status(&self, claim: &Tree) -> Result<Tree> {
        let meta = claim.at("metadata");
        self.client.update_status(CLAIMS.resource, meta.str("namespace"), meta.str("name"), claim).await
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
