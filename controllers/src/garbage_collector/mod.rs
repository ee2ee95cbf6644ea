//! Deletes objects without owners and completes foreground and orphaning deletions. It watches the metadata of all
//! objects and acts on its graph; only owners that were never observed are looked up.

mod actions;
mod graph;
mod object;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::tree::Str;
use api::{Tree, tree};
use client::{Key, Result};
use stdx::sync::Mutex;
use tokio::sync::OnceCell;

use crate::discovery::ServedResource;
use crate::framework::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use crate::metadata_monitor::{Listener, MetadataMonitor};
use graph::{Graph, OwnerDescription, WorkItems};
use object::{Object, TypeMeta, Uid};
use plan::{OwnerLookup, Step};

/// Owner and dependent arrive through different watches, at slightly different times.
const SOON: Duration = Duration::from_millis(200);
/// Owners that cannot be watched are looked up again after this.
const UNWATCHED: Duration = Duration::from_secs(300);

struct Collector {
    graph: Arc<Mutex<Graph>>,
    metadata_monitor: Arc<MetadataMonitor>,
    context: Context,
    synced: OnceCell<()>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    if !context.options.enable_garbage_collector {
        return None;
    }
    let graph = Arc::new(Mutex::new(Graph::default()));
    let watcher = Watcher { graph: graph.clone(), context: context.clone() };
    setup.metadata_monitor.listen(Arc::new(watcher));
    let metadata_monitor = setup.metadata_monitor.clone();
    Some(Box::new(Collector { graph, metadata_monitor, context: context.clone(), synced: OnceCell::new() }))
}

/// Updates the graph from the watches.
struct Watcher {
    graph: Arc<Mutex<Graph>>,
    context: Context,
}

impl Watcher {
    fn enqueue(&self, graph: &Graph, work_items: WorkItems) {
        queue(&self.context, &work_items);
        for (uid, owner) in &work_items.foreign {
            self.report(graph.get(uid), owner);
        }
    }

    fn report(&self, dependent: Option<&Object>, owner: &OwnerDescription) {
        let Some(dependent) = dependent else { return };
        let metadata = tree! {
            "namespace" => &*dependent.namespace,
            "name" => &*dependent.name,
            "uid" => dependent.uid.to_string(),
        };
        let about = tree! {
            "apiVersion" => dependent.of.api_version.clone(),
            "kind" => dependent.of.kind.clone(),
            "metadata" => metadata,
        };
        let OwnerDescription { uid, of, name, namespace } = owner;
        let (api_version, kind) = (&of.api_version, &of.kind);
        let identity = format!("[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]");
        let message = format!("ownerRef {identity} does not exist in namespace {:?}", &**namespace);
        self.context.recorder.warning(&about, "OwnerRefInvalidNamespace", message);
    }
}

fn queue(context: &Context, work_items: &WorkItems) {
    for uid in &work_items.now {
        context.queue.add(Key::from(uid.to_string()));
    }
    for uid in &work_items.soon {
        context.queue.add_after(Key::from(uid.to_string()), SOON);
    }
}

fn type_of(served: &ServedResource) -> TypeMeta {
    TypeMeta { api_version: Str::from(served.resource().api_version()), kind: served.kind.clone() }
}

impl Listener for Watcher {
    fn put(&self, of: &ServedResource, object: &Tree) {
        let mut graph = self.graph.lock();
        let of = graph.intern.of(type_of(of));
        let object = Object::read(of, object, &mut graph.intern);
        let work_items = graph.put(object);
        self.enqueue(&graph, work_items);
    }

    fn deleted(&self, _: &ServedResource, object: &Tree) {
        let mut graph = self.graph.lock();
        let work_items = graph.delete(&Uid::from(object.str("metadata.uid")));
        self.enqueue(&graph, work_items);
    }

    fn listed(&self, of: &ServedResource, uids: &BTreeSet<Str>) {
        let kept: BTreeSet<Uid> = uids.iter().map(|uid| Uid::from(uid.as_str())).collect();
        let mut graph = self.graph.lock();
        for uid in graph.missing(&type_of(of), &kept) {
            let work_items = graph.delete(&uid);
            self.enqueue(&graph, work_items);
        }
    }
}

impl Collector {
    async fn collect(&self, uid: &Uid) -> Result<Outcome> {
        // Objects that were not observed yet would look deleted.
        self.synced.get_or_init(|| self.metadata_monitor.synced()).await;
        let mut verdicts = Vec::new();
        loop {
            let step = plan::plan(&self.graph.lock(), uid, &verdicts);
            match step {
                Step::FetchOwner(owner) => {
                    let verdict = self.fetch_owner(&owner).await?;
                    verdicts.push((owner, verdict));
                }
                step => {
                    self.actions(uid, step).await?;
                    return Ok(self.outcome(&verdicts));
                }
            }
        }
    }

    /// Owners that cannot be watched are checked periodically.
    fn outcome(&self, verdicts: &[(OwnerDescription, OwnerLookup)]) -> Outcome {
        let unwatched = |(owner, verdict): &(OwnerDescription, OwnerLookup)| {
            let served = self.metadata_monitor.known().find_kind(owner.of.group(), &owner.of.kind).cloned();
            matches!(verdict, OwnerLookup::Present { .. })
                && !served.is_some_and(|it| self.metadata_monitor.is_followed(&it))
        };
        if verdicts.iter().any(unwatched) { Outcome::RequeueAfter(UNWATCHED) } else { Outcome::Done }
    }
}

impl Reconcile for Collector {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async move { self.collect(&Uid::from(key)).await })
    }
}
