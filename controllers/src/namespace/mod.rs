//! Deletes the content of terminating namespaces, pods first, and then finalizes them.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::tree::Str;
use api::{Tree, time};
use client::{DeleteOptions, Error, Key, Propagation, Queue, Resource, Result, Selection, Store};
use stdx::sync::{Mutex, MutexGuard};

use crate::discovery::ServedResource;
use crate::framework::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use crate::metadata_monitor::{Listener, MetadataMonitor};
use crate::support::batch;
use plan::{FINALIZER, RemainingObjects};

const NAMESPACES: Resource = Resource::core("namespaces");

struct Controller {
    namespaces: Arc<Store>,
    metadata_monitor: Arc<MetadataMonitor>,
    waiting: Arc<TerminatingNamespaces>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(Selection::all(NAMESPACES));
    let queue = context.queue.clone();
    informer.on_change(move |change| {
        if change.new.as_deref().is_some_and(is_deleted) {
            queue.add(change.key.clone());
        }
    });
    let waiting = Arc::new(TerminatingNamespaces { queue: context.queue.clone(), left: Mutex::default() });
    setup.metadata_monitor.listen(waiting.clone());
    let (namespaces, metadata_monitor) = (informer.store().clone(), setup.metadata_monitor.clone());
    Some(Box::new(Controller { namespaces, metadata_monitor, waiting, context: context.clone() }))
}

fn is_deleted(namespace: &Tree) -> bool {
    namespace.at("metadata").has("deletionTimestamp")
}

/// Terminating namespaces with the number of remaining objects at the last sync: once these are deleted, the namespace
/// is queued at once.
struct TerminatingNamespaces {
    queue: Arc<Queue>,
    left: Mutex<BTreeMap<String, usize>>,
}

impl TerminatingNamespaces {
    fn left(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.left.lock()
    }

    fn set(&self, namespace: &str, left: usize) {
        match left {
            0 => drop(self.left().remove(namespace)),
            left => drop(self.left().insert(namespace.to_string(), left)),
        }
    }
}

impl Listener for TerminatingNamespaces {
    fn put(&self, _: &ServedResource, _: &Tree) {}

    fn deleted(&self, _: &ServedResource, object: &Tree) {
        let namespace = object.str("metadata.namespace");
        let mut waiting = self.left();
        let Some(left) = waiting.get_mut(namespace) else { return };
        *left -= 1;
        if *left == 0 {
            waiting.remove(namespace);
            self.queue.add(Key::from(namespace));
        }
    }

    /// Missed deletions are found by the next periodic sync.
    fn listed(&self, _: &ServedResource, _: &BTreeSet<Str>) {}
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(namespace) = self.namespaces.get(name).filter(|namespace| is_deleted(namespace)) else {
            self.waiting.set(name, 0);
            return Ok(Outcome::Done);
        };
        let is_ours = |finalizer: &Tree| finalizer.as_str() == Some(FINALIZER);
        if !namespace.list("spec.finalizers").iter().any(is_ours) {
            return Ok(Outcome::Done);
        }
        let outcome = self.empty(&namespace).await;
        let namespace = self.update_conditions(&namespace, &outcome).await?;
        self.waiting.set(name, outcome.left.values().map(|left| left.count).sum());
        if outcome.is_empty() {
            let finalized = plan::finalized(&namespace);
            let response = self.context.client.update_subresource(NAMESPACES, "", name, "finalize", &finalized).await;
            return ignore_not_found(response).map(|_| Outcome::Done);
        }
        match outcome.pause_seconds() {
            Some(seconds) if outcome.failures.is_empty() && outcome.stale.is_empty() => {
                Ok(Outcome::RequeueAfter(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
            }
            _ => Err(Error::failed(format!(
                "it is not empty: {}",
                [outcome.failures, outcome.stale].concat().join(", ")
            ))),
        }
    }

    /// Deletes the content of a namespace in stages: the next stage starts when nothing of the previous one remains.
    async fn empty(&self, namespace: &Tree) -> plan::Outcome {
        let discovery = self.metadata_monitor.discovery().await;
        let mut outcome = plan::Outcome { stale: discovery.stale.clone(), ..plan::Outcome::default() };
        for stage in plan::stages(&discovery) {
            let each: Vec<_> = stage.iter().map(|served| self.empty_of(served, namespace)).collect();
            for (served, result) in stage.iter().zip(batch::bounded(each).await) {
                match result {
                    Ok(left) => outcome.add(served, namespace.str("metadata.name"), left),
                    Err(error) => outcome.failures.push(error.to_string()),
                }
            }
            if !outcome.left.is_empty() {
                break;
            }
        }
        outcome
    }

    async fn empty_of(&self, served: &ServedResource, namespace: &Tree) -> Result<RemainingObjects> {
        let name = namespace.str("metadata.name");
        if !served.supports(&["list"]) || self.list(served, name, "limit=1").await?.is_empty() {
            return Ok(RemainingObjects::default());
        }
        self.delete_all(served, name).await?;
        let deleted_at = time::parse(namespace.str("metadata.deletionTimestamp")).map_or(0, |time| time.seconds);
        Ok(plan::left(&self.list(served, name, "").await?, deleted_at, self.context.now_seconds()))
    }

    /// Metadata is sufficient for most objects; of pods the grace period is needed too.
    async fn list(&self, served: &ServedResource, namespace: &str, query: &str) -> Result<Vec<Tree>> {
        let is_pods = served.group.is_empty() && served.plural == "pods";
        let client = &self.context.client;
        let mut list = match is_pods {
            true => client.list(served.resource(), namespace, query).await,
            false => client.list_metadata(served.resource(), namespace, query).await,
        };
        if let Err(error) = &list
            && is_unserved(error)
        {
            list = Ok(Tree::Null);
        }
        match list?.remove("items") {
            Some(Tree::List(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    async fn delete_all(&self, served: &ServedResource, namespace: &str) -> Result<()> {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        let (client, resource) = (&self.context.client, served.resource());
        if served.supports(&["deletecollection"]) {
            let deleted = client.delete_collection(resource, namespace, "", options).await;
            return deleted.map(|_| ()).or_else(|error| if is_unserved(&error) { Ok(()) } else { Err(error) });
        }
        let items = self.list(served, namespace, "").await?;
        let delete = |item: &Tree| {
            let name = item.str("metadata.name").to_string();
            async move { client.delete(resource, namespace, &name, options).await }
        };
        let each: Vec<_> = items.iter().map(delete).collect();
        for deleted in batch::bounded(each).await {
            ignore_not_found(deleted)?;
        }
        Ok(())
    }

    /// Writes the conditions; returns the updated namespace. A namespace that is empty at the first sync gets no
    /// conditions, since it is finalized right away.
    async fn update_conditions(&self, namespace: &Arc<Tree>, outcome: &plan::Outcome) -> Result<Arc<Tree>> {
        if outcome.is_empty() && namespace.list("status.conditions").is_empty() {
            return Ok(namespace.clone());
        }
        let Some(changed) = plan::with_conditions(namespace, outcome, self.context.now_seconds()) else {
            return Ok(namespace.clone());
        };
        let written =
            self.context.client.update_status(NAMESPACES, "", namespace.str("metadata.name"), &changed).await?;
        Ok(Arc::new(written))
    }
}

fn ignore_not_found(result: Result<Tree>) -> Result<()> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Discovery is outdated: the resource no longer exists or no longer supports the verb.
fn is_unserved(error: &Error) -> bool {
    error.is_not_found() || error.code() == Some(405)
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
