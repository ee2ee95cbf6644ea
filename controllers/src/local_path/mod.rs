//! The local path provisioner: volumes that are directories of nodes. Keys with a slash are claims, those without are
//! volumes.

mod plan;

pub use plan::default_class;

use std::sync::Arc;

use api::Tree;
use client::{Change, Client, DeleteOptions, Index, Key, Patch, Recorder, Result, Store, key_of, split};

use crate::support::NODES;
use crate::support::event_message::{EventDeduplicator, EventMessage};
use crate::support::volumes::{CLAIMS, CLASSES, SELECTED_NODE, VOLUMES, annotation, class_of};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{DeletionStep, Plan};

/// Claims waiting for a local path volume, by the selected node.
const WAITING: Index = Index {
    name: "local-path",
    values: |claim| Vec::from_iter(plan::needs_volume(claim).then(|| annotation(claim, SELECTED_NODE).to_string())),
};

/// Volumes to delete, by host.
const GOING: Index = Index {
    name: "local-path-going",
    values: |volume| Vec::from_iter(plan::needs_deletion(volume).then(|| plan::host_of(volume).to_string())),
};

/// Nodes by the host name that volumes use.
const HOSTS: Index = Index { name: "local-path-host", values: |node| vec![plan::host(node).to_string()] };

struct Controller {
    claims: Arc<Store>,
    volumes: Arc<Store>,
    classes: Arc<Store>,
    nodes: Arc<Store>,
    client: Client,
    recorder: Recorder,
    event_recorder: EventDeduplicator,
    directory: String,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let directory = context.options.local_path_directory.clone();
    if directory.is_empty() {
        return None;
    }
    let [claims, volumes, nodes] = [CLAIMS, VOLUMES, NODES].map(|selection| setup.informer(selection));
    claims.index_by(WAITING);
    volumes.index_by(GOING);
    nodes.index_by(HOSTS);
    let queue = context.queue.clone();
    claims.on_change(move |change| {
        if is_relevant(change) {
            queue.add(change.key.clone());
        }
    });
    let queue = context.queue.clone();
    volumes.on_change(move |change| {
        if change.new.as_deref().is_some_and(plan::needs_deletion) {
            queue.add(change.key.clone());
        }
    });
    let (store, going, queue) = (claims.store().clone(), volumes.store().clone(), context.queue.clone());
    nodes.on_change(move |change| {
        if change.old.is_none() {
            store.find_keys(WAITING, &change.key).into_iter().for_each(|key| queue.add(key));
        }
        // The node may have erased directories, or may be deleted.
        if let Some(node) = change.new.as_deref().or(change.old.as_deref()) {
            going.find_keys(GOING, plan::host(node)).into_iter().for_each(|key| queue.add(key));
        }
    });
    Some(Box::new(Controller {
        claims: claims.store().clone(),
        volumes: volumes.store().clone(),
        classes: setup.informer(CLASSES).store().clone(),
        nodes: nodes.store().clone(),
        client: context.client.clone(),
        recorder: context.recorder.named(plan::NAME),
        event_recorder: EventDeduplicator::default(),
        directory,
    }))
}

fn is_relevant(change: &Change) -> bool {
    change.new.as_deref().map_or(change.old.is_some(), plan::needs_volume)
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        match (split(key).0, self.claims.get(key), self.volumes.get(key)) {
            ("", _, Some(volume)) => self.plan_deletion(&volume).await?,
            ("", _, None) => {}
            (_, Some(claim), _) => self.provision(&claim).await?,
            (_, None, _) => self.event_recorder.remove(key),
        }
        Ok(Outcome::Done)
    }

    async fn provision(&self, claim: &Tree) -> Result<()> {
        let class = self.classes.get(class_of(claim));
        let node = self.nodes.get(annotation(claim, SELECTED_NODE));
        let is_made = self.volumes.get(&plan::volume_name(claim)).is_some();
        match plan::plan(claim, class.as_deref(), node.as_deref(), is_made, &self.directory) {
            Plan::Keep => Ok(()),
            Plan::Refuse(event) => {
                self.event_recorder.record(&self.recorder, claim, event);
                Ok(())
            }
            Plan::Create(volume) => self.create(claim, &volume).await,
        }
    }

    async fn create(&self, claim: &Tree, volume: &Tree) -> Result<()> {
        let key: Key = key_of(claim);
        let begin = format!("External provisioner is provisioning volume for claim {key:?}");
        EventMessage::normal("Provisioning", begin).record(&self.recorder, claim);
        match self.client.create(VOLUMES.resource, "", volume).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        let done = format!("Successfully provisioned volume {}", volume.str("metadata.name"));
        EventMessage::normal("ProvisioningSucceeded", done).record(&self.recorder, claim);
        Ok(())
    }

    async fn plan_deletion(&self, volume: &Tree) -> Result<()> {
        if !plan::needs_deletion(volume) {
            return Ok(());
        }
        let host = plan::host_of(volume);
        let node = self.nodes.find(HOSTS, host).into_iter().next();
        match plan::plan_deletion(volume, node.as_deref(), &self.volumes.find(GOING, host)) {
            DeletionStep::Wait => Ok(()),
            DeletionStep::RequestErasure(patch) => self.annotate_node(node.as_deref(), &patch).await,
            DeletionStep::Delete => {
                let name = volume.str("metadata.name");
                match self.client.delete(VOLUMES.resource, "", name, DeleteOptions::of(volume)).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
                match node.as_deref().and_then(|node| plan::done(volume, node)) {
                    Some(patch) => self.annotate_node(node.as_deref(), &patch).await,
                    None => Ok(()),
                }
            }
        }
    }

    /// Sets annotations of a node.
    async fn annotate_node(&self, node: Option<&Tree>, patch: &Tree) -> Result<()> {
        let name = node.map_or("", |node| node.str("metadata.name"));
        match self.client.patch(NODES.resource, "", name, "status", Patch::Merge(patch)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
