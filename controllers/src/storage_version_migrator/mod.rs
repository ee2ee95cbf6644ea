//! Rewrites the objects of a resource in its current storage version and encoding, as StorageVersionMigrations request.
//! Afterwards a CustomResourceDefinition has one stored version.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time, tree};
use client::{Error, Index, Patch, Resource, Result, Selection, Store};

use crate::discovery::{self, ServedResource};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{FAILED, Progress, RUNNING, SUCCEEDED, Step, is_true, running_message, set_condition};

const MIGRATIONS: Resource = Resource::new("storagemigration.k8s.io", "v1", "storageversionmigrations");
const DEFINITIONS: Resource = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const BY_RESOURCE: Index = Index { name: "migrated-resource", values: |object| vec![resource_name(object)] };
/// The field manager of definitions.
const RUNNER: &str = "migration-runner-controller";
/// A resource may be missing in discovery for so long after the migration was created.
const LONGEST_ABSENCE: i64 = 60;
const RETRY: Duration = Duration::from_secs(1);
/// Objects are listed in chunks of this size.
const CHUNK: usize = 500;

/// `RESOURCE.GROUP`, which is also the name of the definition of a custom resource.
fn resource_name(migration: &Tree) -> String {
    format!("{}.{}", migration.str("spec.resource.resource"), migration.str("spec.resource.group"))
}

struct Controller {
    migrations: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let informer = setup.informer(Selection::all(MIGRATIONS));
    informer.index_by(BY_RESOURCE);
    let (store, queue) = (informer.store().clone(), context.queue.clone());
    informer.on_change(move |change| {
        // When a migration ends or is deleted, the next one of its resource runs.
        let object = change.new.as_deref().or(change.old.as_deref());
        let all = object.map(|object| store.find_keys(BY_RESOURCE, &resource_name(object))).unwrap_or_default();
        all.into_iter().for_each(|key| queue.add(key));
    });
    Some(Box::new(Controller { migrations: informer.store().clone(), context: context.clone() }))
}

impl Controller {
    fn now(&self) -> String {
        time::format_seconds(self.context.now_seconds()).to_string()
    }

    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(migration) = self.migrations.get(name) else { return Ok(Outcome::Done) };
        let all = self.migrations.find(BY_RESOURCE, &resource_name(&migration));
        match plan::next_step(&migration, &all) {
            Step::Nothing => Ok(Outcome::Done),
            Step::Start => self.start(&migration).await,
            Step::RecordRevision => self.record_revision(&migration).await,
            Step::Migrate => self.migrate(&migration).await,
            Step::Finish => self.finish(&migration).await,
        }
    }

    async fn start(&self, migration: &Tree) -> Result<Outcome> {
        if let Some(definition) = self.definition(migration).await? {
            let name = migration.str("metadata.name");
            self.apply_definition(&plan::definition_running(&definition, name, &self.now())).await?;
        }
        let message = running_message(Progress::default(), None);
        self.report(migration, &[(RUNNING, true, "MigrationRunning", &message)]).await
    }

    /// Every object that exists now has a revision at or before this one.
    async fn record_revision(&self, migration: &Tree) -> Result<Outcome> {
        let served = match self.find(migration).await? {
            Some(served) => served,
            None if self.is_recent(migration) => return Ok(Outcome::RequeueAfter(RETRY)),
            None => return self.fail(migration, "resource does not exist in discovery").await,
        };
        if !served.supports(&plan::REQUIRED_VERBS) {
            let text = format!("{}, Resource={}", served.group_version(), served.plural);
            let verbs = plan::REQUIRED_VERBS.join(" ");
            return self
                .fail(migration, &format!("resource {text:?} does not support discovery operations: [{verbs}]"))
                .await;
        }
        let list = self.context.client.list_metadata(served.resource(), "", "limit=1").await?;
        let mut changed = migration.clone();
        changed.child("status").set("resourceVersion", list.str("metadata.resourceVersion"));
        self.update_status(&changed).await
    }

    async fn migrate(&self, migration: &Tree) -> Result<Outcome> {
        let Some(served) = self.find(migration).await? else {
            if self.is_recent(migration) {
                return Ok(Outcome::RequeueAfter(RETRY));
            }
            return self.fail_unhandled(migration, "unable to obtain GVR from discovery").await;
        };
        let items = self.list(&served).await?;
        let Ok(revision) = migration.str("status.resourceVersion").parse() else {
            return self.fail_unhandled(migration, "the recorded resource version is not a number").await;
        };
        let candidates: Vec<&Tree> = plan::candidates(&items, revision).collect();
        let mut progress = Progress { left: candidates.len(), total: items.len() };
        for item in candidates {
            match self.rewrite(&served, item).await {
                // The object was changed meanwhile, which migrates it too, or deleted.
                Ok(()) | Err(Error::Status { code: 404 | 409, .. }) => progress.left -= 1,
                Err(error) if is_transient(&error) => {
                    let message = running_message(progress, Some(&text_of(&error)));
                    self.report(migration, &[(RUNNING, true, "MigrationRunning", &message)]).await?;
                    return Err(error);
                }
                Err(error) => return self.fail_with(migration, progress, &text_of(&error)).await,
            }
        }
        let message = running_message(progress, None);
        let done = (SUCCEEDED, true, "StorageVersionMigrationSucceeded", "Migration completed");
        self.report(migration, &[(RUNNING, true, "MigrationRunning", &message), done]).await
    }

    /// All objects, without their contents.
    async fn list(&self, served: &ServedResource) -> Result<Vec<Tree>> {
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let query =
                if token.is_empty() { format!("limit={CHUNK}") } else { format!("limit={CHUNK}&continue={token}") };
            let list = self.context.client.list_metadata(served.resource(), "", &query).await?;
            items.extend_from_slice(list.list("items"));
            token = list.str("metadata.continue").to_string();
            if token.is_empty() {
                return Ok(items);
            }
        }
    }

    /// A patch without changes: the server stores the object again if it is stored in another version or encoding.
    async fn rewrite(&self, served: &ServedResource, item: &Tree) -> Result<()> {
        let api_version = served.group_version();
        let patch = tree! {
            "apiVersion" => api_version.trim_start_matches('/'), "kind" => served.kind.as_str(),
            "metadata" => tree! { "resourceVersion" => item.str("metadata.resourceVersion") },
        };
        let (namespace, name) = (item.str("metadata.namespace"), item.str("metadata.name"));
        self.context.client.patch(served.resource(), namespace, name, "", Patch::Merge(&patch)).await.map(drop)
    }

    async fn finish(&self, migration: &Tree) -> Result<Outcome> {
        if let Some(definition) = self.definition(migration).await? {
            let is_success = is_true(migration, SUCCEEDED);
            self.apply_definition(&plan::definition_finished(&definition, is_success, &self.now())).await?;
        }
        self.report(migration, &[(RUNNING, false, "MigrationCompleted", "Migration completed")]).await
    }

    async fn fail(&self, migration: &Tree, message: &str) -> Result<Outcome> {
        self.report(migration, &[(FAILED, true, "StorageVersionMigrationFailed", message)]).await
    }

    async fn fail_unhandled(&self, migration: &Tree, error: &str) -> Result<Outcome> {
        self.fail(migration, &format!("migration encountered unhandled error: {error}")).await
    }

    async fn fail_with(&self, migration: &Tree, progress: Progress, error: &str) -> Result<Outcome> {
        let Progress { left, total } = progress;
        let failed = format!("{left}/{total} not yet migrated. migration encountered unhandled error: {error}");
        let message = running_message(progress, None);
        let running = (RUNNING, true, "MigrationRunning", message.as_str());
        self.report(migration, &[running, (FAILED, true, "StorageVersionMigrationFailed", &failed)]).await
    }

    async fn report(&self, migration: &Tree, conditions: &[(&str, bool, &str, &str)]) -> Result<Outcome> {
        let mut changed = migration.clone();
        for (name, is_true, reason, message) in conditions {
            set_condition(&mut changed, name, *is_true, (reason, message), &self.now());
        }
        if changed == *migration {
            return Ok(Outcome::Done);
        }
        self.update_status(&changed).await
    }

    async fn update_status(&self, migration: &Tree) -> Result<Outcome> {
        let name = migration.str("metadata.name");
        self.context.client.update_status(MIGRATIONS, "", name, migration).await.map(|_| Outcome::Done)
    }

    /// The definition of the migrated resource, if it is a custom one.
    async fn definition(&self, migration: &Tree) -> Result<Option<Tree>> {
        match self.context.client.get(DEFINITIONS, "", &resource_name(migration)).await {
            Ok(definition) => Ok(Some(definition)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn apply_definition(&self, object: &Tree) -> Result<()> {
        let patch = Patch::Apply { object, manager: RUNNER, force: true };
        let name = object.str("metadata.name");
        self.context.client.patch(DEFINITIONS, "", name, "status", patch).await.map(drop)
    }

    /// The migrated resource in the preferred version of its group.
    async fn find(&self, migration: &Tree) -> Result<Option<ServedResource>> {
        let found = discovery::fetch(&self.context.client).await?;
        let (group, plural) = (migration.str("spec.resource.group"), migration.str("spec.resource.resource"));
        Ok(found.resources.into_iter().find(|served| served.group == group && served.plural == plural))
    }

    fn is_recent(&self, migration: &Tree) -> bool {
        let created = time::parse(migration.str("metadata.creationTimestamp")).map_or(0, |time| time.seconds);
        self.context.now_seconds() < created + LONGEST_ABSENCE
    }
}

fn text_of(error: &Error) -> String {
    match error {
        Error::Status { message, .. } => message.clone(),
        error => error.to_string(),
    }
}

/// Whether the same request may succeed later.
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Transport(_) | Error::Status { code: 429 | 500 | 503 | 504, .. })
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
