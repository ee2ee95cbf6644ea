//! Accepts the names of CustomResourceDefinitions, establishes them, registers their groups, and deletes their objects
//! before they are deleted. As in upstream, this belongs to the API server.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time};
use client::{Client, DeleteOptions, Index, Resource, Result, Selection, Store};
use stdx::clock::Clock;

use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::Condition;

const DEFINITIONS: Resource = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const SERVICES: Resource = Resource::new("apiregistration.k8s.io", "v1", "apiservices");
/// Definitions by the names that they have accepted.
const BY_NAME: Index = Index { name: "accepted-name", values: plan::accepted_keys };
/// Definitions that wait for names, by group.
const WAITING: Index = Index { name: "waiting-in-group", values: waiting_group };
/// Definitions by the names of their APIServices.
const BY_VERSION: Index = Index { name: "served-version", values: plan::served_versions };
/// APIServices of definitions, by group.
const BY_GROUP: Index = Index { name: "automanaged-group", values: automanaged_group };
/// How soon a definition looks again whether its objects are deleted.
const DELETION_INTERVAL: Duration = Duration::from_millis(100);

fn waiting_group(object: &Tree) -> Vec<String> {
    plan::has_open_names(object).then(|| object.str("spec.group").to_string()).into_iter().collect()
}

fn automanaged_group(registered: &Tree) -> Vec<String> {
    plan::is_automanaged(registered).then(|| registered.str("spec.group").to_string()).into_iter().collect()
}

struct Controller {
    definitions: Arc<Store>,
    services: Arc<Store>,
    client: Client,
    clock: Arc<dyn Clock>,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(Selection::all(DEFINITIONS));
    informer.index_by(BY_NAME).index_by(WAITING).index_by(BY_VERSION);
    let definitions = informer.store().clone();
    let registered = setup.informer(Selection::all(SERVICES));
    registered.index_by(BY_GROUP);
    let services = registered.store().clone();
    let (store, queue) = (definitions.clone(), context.queue.clone());
    registered.on_change(move |change| {
        // One of the definitions that serve the version syncs its APIService. Without any, the group of the key counts.
        let serving = store.find_keys(BY_VERSION, &change.key).into_iter().next();
        queue.add(serving.unwrap_or_else(|| change.key.clone()));
    });
    let (store, queue) = (definitions.clone(), context.queue.clone());
    informer.on_change(move |change| {
        queue.add(change.key.clone());
        // Another definition may wait for a name that is free again.
        let Some(old) = change.old.as_deref() else { return };
        let kept = change.new.as_deref().map(plan::accepted_keys).unwrap_or_default();
        if plan::accepted_keys(old).iter().any(|name| !kept.contains(name)) {
            store.find_keys(WAITING, old.str("spec.group")).into_iter().for_each(|key| queue.add(key));
        }
    });
    let client = context.client.clone();
    Some(Box::new(Controller { definitions, services, client, clock: context.clock.clone() }))
}

impl Controller {
    fn now(&self) -> String {
        time::format_seconds(self.clock.now().seconds).to_string()
    }

    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(object) = self.definitions.get(name) else {
            let group = name.split_once('.').map_or("", |(_, group)| group);
            return self.unregister(group).await.map(|()| Outcome::Done);
        };
        if plan::is_finalized_here(&object) {
            return self.finalize(&object).await;
        }
        self.register(&object).await?;
        self.unregister(object.str("spec.group")).await?;
        self.accept(&object).await?;
        Ok(Outcome::Done)
    }

    /// Each step is a write of its own, as clients that watch definitions expect.
    async fn accept(&self, object: &Tree) -> Result<()> {
        let mut object = object.clone();
        if let Some(changed) = plan::check_approval(&object, &self.now()) {
            object = self.update_status(&changed).await?;
        }
        if let Some(changed) = plan::check_structure(&object, &self.now()) {
            object = self.update_status(&changed).await?;
        }
        if let Some(changed) =
            plan::accept_names(&object, |name| self.definitions.count(BY_NAME, name) > 0, &self.now())
        {
            object = self.update_status(&changed).await?;
        }
        if let Some(changed) = plan::establish(&object, &self.now()) {
            self.update_status(&changed).await?;
        }
        Ok(())
    }

    async fn update_status(&self, object: &Tree) -> Result<Tree> {
        self.client.update_status(DEFINITIONS, "", object.str("metadata.name"), object).await
    }

    /// Creates the APIServices of the versions of a definition, and resets those that were changed.
    async fn register(&self, object: &Tree) -> Result<()> {
        let group = object.str("spec.group");
        for version in object.list("spec.versions").iter().filter(|version| version.bool("served")) {
            let version = version.str("name");
            let (name, desired) = (format!("{version}.{group}"), plan::api_service(group, version));
            let written = match self.services.get(&name) {
                None => self.client.create(SERVICES, "", &desired).await,
                Some(current) => match plan::restore(&current, &desired) {
                    Some(restored) => self.client.update(SERVICES, "", &name, &restored).await,
                    None => continue,
                },
            };
            written.map(drop).or_else(ignore_conflict)?;
        }
        Ok(())
    }

    /// Deletes the APIServices of a group's versions that no definition serves any longer.
    async fn unregister(&self, group: &str) -> Result<()> {
        for registered in self.services.find(BY_GROUP, group) {
            let name = registered.str("metadata.name");
            if self.definitions.count(BY_VERSION, name) == 0 {
                let deleted = self.client.delete(SERVICES, "", name, DeleteOptions::of(&registered)).await;
                deleted.map(drop).or_else(ignore_conflict)?;
            }
        }
        Ok(())
    }

    async fn finalize(&self, object: &Tree) -> Result<Outcome> {
        const NAME: &str = "Terminating";
        if !plan::is_true(object, "Established") {
            let never = Condition::new(NAME, "False", "NeverEstablished", "resource was never established");
            self.update_status(&plan::release(object, &never, &self.now())).await?;
            return Ok(Outcome::Done);
        }
        let running =
            Condition::new(NAME, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        let mut changed = object.clone();
        plan::set_condition(&mut changed, &running, &self.now());
        let object = if changed == *object { changed } else { self.update_status(&changed).await? };
        if self.delete_instances(&object).await? > 0 {
            return Ok(Outcome::RequeueAfter(DELETION_INTERVAL));
        }
        let done = Condition::new(NAME, "False", "InstanceDeletionCompleted", "removed all instances");
        self.update_status(&plan::release(&object, &done, &self.now())).await?;
        Ok(Outcome::Done)
    }

    /// Deletes all objects and returns the number of remaining ones.
    async fn delete_instances(&self, object: &Tree) -> Result<usize> {
        let resource = instances(object);
        let left = self.client.list_metadata(resource, "", "").await?;
        let mut namespaces: Vec<&str> = left
            .list("items")
            .iter()
            .filter(|item| !item.at("metadata").has("deletionTimestamp"))
            .map(|item| item.str("metadata.namespace"))
            .collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        for namespace in namespaces {
            self.client.delete_collection(resource, namespace, "", DeleteOptions::default()).await?;
        }
        let left = self.client.list_metadata(resource, "", "limit=500").await?;
        Ok(left.list("items").len())
    }
}

/// The objects of a definition in a version that is served, or in the stored one: that is served until the definition
/// is deleted.
fn instances(object: &Tree) -> Resource {
    let versions = object.list("spec.versions");
    let served = versions.iter().find(|version| version.bool("served"));
    let version = served.or(versions.iter().find(|version| version.bool("storage")));
    let version = version.map_or("", |version| version.str("name"));
    Resource::named(object.str("spec.group"), version, object.str("spec.names.plural"))
}

/// The other replica of the server was first.
fn ignore_conflict(error: client::Error) -> Result<()> {
    match error {
        client::Error::Status { code: 404 | 409, .. } => Ok(()),
        error => Err(error),
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
