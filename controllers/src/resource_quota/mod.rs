//! Recomputes quota usage after deletions. Admission charges additions in the same commit as the object, so that only
//! released usage has to be found here, and objects older than the quota that an informer shows late.

mod counts;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Change, Informer, Resource, Result, Selection, Store, revision_of};
use kinds::{Kind, Verb};
use stdx::sync::Mutex;

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use counts::CountRevisions;
use plan::{CountedObjects, Sources};

const QUOTAS: Resource = Resource::core("resourcequotas");
/// Deletions are batched for this long, which also lets the informers of one commit catch up.
const GATHER: Duration = Duration::from_millis(200);

/// Group and plural of a counted resource.
type ResourceName = (String, String);

struct Controller {
    quotas: Arc<Store>,
    context: Context,
    /// The informers of counted resources.
    sources: Mutex<BTreeMap<ResourceName, Arc<Informer>>>,
    counts: Arc<CountRevisions>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let quotas = setup.informer(Selection::all(QUOTAS));
    let queue = context.queue.clone();
    quotas.on_change(move |change| {
        if change.new.as_deref().is_some_and(|new| needs_recount(change.old.as_deref(), new)) {
            queue.add(change.key.clone());
        }
    });
    let (quotas, context) = (quotas.store().clone(), context.clone());
    Some(Box::new(Controller { quotas, context, sources: Mutex::default(), counts: Arc::default() }))
}

/// Usage updates by admission do not trigger a recount.
fn needs_recount(old: Option<&Tree>, new: &Tree) -> bool {
    old.is_none_or(|old| old.at("spec") != new.at("spec")) || new.at("status.hard") != new.at("spec.hard")
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(quota) = self.quotas.get(key) else {
            self.counts.forget(key);
            return Ok(Outcome::Done);
        };
        let (namespace, name) = client::split(key);
        let informers = self.synced_informers(&quota).await?;
        self.counts.begin(key);
        let count = |((group, plural), informer): (&ResourceName, &Arc<Informer>)| {
            ((group.clone(), plural.clone()), count_objects(informer, namespace, group, plural))
        };
        let sources: Sources = informers.iter().map(count).collect();
        let mut revision = revision_of(&quota);
        if let Some(status) = plan::plan(&quota, &sources, self.context.clock.now()) {
            let mut changed = (*quota).clone();
            changed.set("status", status);
            match self.context.client.update_status(QUOTAS, namespace, name, &changed).await {
                Err(error) if error.is_not_found() => {
                    self.counts.forget(key);
                    return Ok(Outcome::Done);
                }
                result => revision = revision_of(&result?),
            }
        }
        self.counts.finish(key, revision.unwrap_or_default());
        Ok(Outcome::RequeueAfter(self.context.options.resource_quota_sync_period))
    }

    /// The informers of the resources that a quota limits, with their first lists. Resources that are not served are
    /// missing.
    async fn synced_informers(&self, quota: &Tree) -> Result<BTreeMap<ResourceName, Arc<Informer>>> {
        let mut informers = BTreeMap::new();
        for (_, (group, plural)) in plan::names(quota) {
            let name = (group.to_string(), plural.to_string());
            if !informers.contains_key(&name)
                && let Some(informer) = self.source(group, plural).await?
            {
                let _ = informer.synced().wait_for(|synced| *synced).await;
                informers.insert(name, informer);
            }
        }
        Ok(informers)
    }

    /// The informer of a counted resource, started on first use.
    async fn source(&self, group: &str, plural: &str) -> Result<Option<Arc<Informer>>> {
        let place = (group.to_string(), plural.to_string());
        if let Some(known) = self.sources().get(&place) {
            return Ok(Some(known.clone()));
        }
        let Some(resource) = self.resource(group, plural).await? else { return Ok(None) };
        let informer = self.context.informers.informer(Selection::all(resource));
        let mut sources = self.sources();
        if sources.insert(place, informer.clone()).is_none() {
            let (queue, quotas, clock) = (self.context.queue.clone(), self.quotas.clone(), self.context.clock.clone());
            let counts = self.counts.clone();
            let kind = kind(group, plural).filter(|_| plan::has_usage(group, plural));
            informer.on_change(move |change| {
                let reduced = may_reduce_usage(kind, change, clock.now());
                let added = added_at(change);
                if reduced || added.is_some() {
                    let (namespace, _) = client::split(&change.key);
                    let mut keys = quotas.keys_in_namespace(namespace);
                    keys.retain(|key| reduced || added.is_some_and(|revision| counts.may_miss(key, revision)));
                    keys.into_iter().for_each(|key| queue.add_after(key, GATHER));
                }
            });
        }
        Ok(Some(informer))
    }

    fn sources(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<ResourceName, Arc<Informer>>> {
        self.sources.lock()
    }

    /// A built-in kind, or a resource from discovery.
    async fn resource(&self, group: &str, plural: &str) -> Result<Option<Resource>> {
        if let Some(kind) = kind(group, plural) {
            return Ok(Some(Resource::named(kind.group, kind.version, kind.plural)));
        }
        let client = &self.context.client;
        let versions = match client.get_path(&format!("/apis/{group}"), "").await {
            Err(error) if error.code() == Some(404) => return Ok(None),
            result => result?,
        };
        let version = versions.str("preferredVersion.version");
        let served = match client.get_path(&format!("/apis/{group}/{version}"), "").await {
            Err(error) if error.code() == Some(404) => return Ok(None),
            result => result?,
        };
        let is_it = |resource: &Tree| resource.str("name") == plural && resource.bool("namespaced");
        Ok(served.list("resources").iter().any(is_it).then(|| Resource::named(group, version, plural)))
    }
}

fn count_objects(informer: &Informer, namespace: &str, group: &str, plural: &str) -> CountedObjects {
    match kind(group, plural).filter(|_| plan::has_usage(group, plural)) {
        Some(kind) => CountedObjects::Objects(kind, informer.store().in_namespace(namespace)),
        None => CountedObjects::Number(informer.store().keys_in_namespace(namespace).len()),
    }
}

/// The revision of an object that is new in the informer.
fn added_at(change: &Change) -> Option<u64> {
    match (&change.old, &change.new) {
        (None, Some(new)) => revision_of(new),
        _ => None,
    }
}

/// Built-in kinds that can be counted.
fn kind(group: &str, plural: &str) -> Option<&'static Kind> {
    let is_it = |kind: &&&Kind| kind.group == group && kind.plural == plural;
    kinds::ALL.iter().find(is_it).copied().filter(|kind| kind.namespaced && kind.has(Verb::Watch))
}

/// Whether the usage may be lower after a change.
fn may_reduce_usage(kind: Option<&Kind>, change: &Change, now: api::time::Timestamp) -> bool {
    match (kind, change.old.as_deref(), change.new.as_deref()) {
        (_, _, None) => true,
        (Some(kind), Some(old), Some(new)) => plan::usage(kind, old, now) != plan::usage(kind, new, now),
        _ => false,
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
