//! Applies manifests to the cluster, and prunes what they had before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use api::Tree;
use client::{Client, DeleteOptions, Propagation, Recorder, Resource};

use super::document::{self, Manifest};
use super::inventory::{self, Inventory, LABEL, NAMESPACE, ObjectRef};

const MAPS: Resource = Resource::core("configmaps");
/// The field manager of the objects.
pub(super) const MANAGER: &str = "tiphys-manifests";
/// Kinds that other objects need, in this order.
const FIRST: [&str; 2] = ["Namespace", "CustomResourceDefinition"];

/// Why an object is not as its manifest.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("no server has {kind} of {api_version}")]
    UnknownKind { api_version: String, kind: String },
    #[error(transparent)]
    Client(#[from] client::Error),
}

/// How a pass over all files ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// There are no manifests.
    Empty,
    Applied,
    /// Something is to be retried.
    Failed,
}

/// The kinds of a group and version.
type Kinds = BTreeMap<String, KindInfo>;

#[derive(Clone)]
struct KindInfo {
    plural: String,
    is_namespaced: bool,
}

/// Applies the manifests of this machine.
pub(super) struct Applier {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) host: String,
}

impl Applier {
    /// Applies all files, and prunes.
    pub(super) async fn sync(&self, dir: &Path) -> client::Result<Pass> {
        let manifests = match document::read_all(dir) {
            Ok(manifests) => manifests,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "failed to read manifests, retrying");
                return Ok(Pass::Failed);
            }
        };
        let known = self.known().await?;
        if manifests.is_empty() && known.iter().all(|one| one.host != self.host) {
            return Ok(Pass::Empty);
        }
        let mut kinds = BTreeMap::new();
        let mut current = Vec::new();
        for manifest in &manifests {
            current.push(self.apply_file(manifest, &known, &mut kinds).await?);
        }
        let is_pruned = self.prune(&known, &current, &mut kinds).await;
        let is_applied = current.iter().all(|one| one.error.is_empty());
        Ok(if is_applied && is_pruned { Pass::Applied } else { Pass::Failed })
    }

    async fn known(&self) -> client::Result<Vec<Inventory>> {
        let maps = self.client.list(MAPS, NAMESPACE, &format!("labelSelector={LABEL}")).await?;
        Ok(maps.list("items").iter().map(Inventory::of_map).collect())
    }

    /// What is known of the file afterwards.
    async fn apply_file(
        &self,
        manifest: &Manifest,
        known: &[Inventory],
        kinds: &mut BTreeMap<String, Kinds>,
    ) -> client::Result<Inventory> {
        let before = known.iter().find(|one| one.file == manifest.name);
        let mut after = Inventory { file: manifest.name.clone(), host: self.host.clone(), ..Inventory::default() };
        match &manifest.objects {
            Err(error) => {
                after.objects = before.map(|one| one.objects.clone()).unwrap_or_default();
                after.error = stdx::error::chain(error);
            }
            Ok(objects) => {
                after.objects = objects.iter().filter_map(ObjectRef::of).collect();
                // Before the first write: a server that is killed between them prunes later all the same.
                let both = before.map(|one| &one.objects | &after.objects).unwrap_or_else(|| after.objects.clone());
                if before.is_none_or(|one| one.objects != both) {
                    self.write(&Inventory { objects: both, ..after.clone() }).await?;
                }
                after.error = self.apply_objects(&manifest.name, objects, kinds).await;
            }
        }
        self.report(before, &after).await?;
        Ok(after)
    }

    /// The errors, one for each object.
    async fn apply_objects(&self, file: &str, objects: &[Tree], kinds: &mut BTreeMap<String, Kinds>) -> String {
        let mut ordered: Vec<&Tree> = objects.iter().collect();
        let rank = |object: &Tree| FIRST.iter().position(|kind| object.str("kind") == *kind).unwrap_or(FIRST.len());
        ordered.sort_by_key(|object| rank(object));
        let mut errors = Vec::new();
        for object in ordered {
            if let Err(error) = self.apply(file, object, kinds).await {
                errors.push(format!("{} {}: {error}", object.str("kind"), object.str("metadata.name")));
            }
        }
        errors.join("; ")
    }

    async fn apply(&self, file: &str, object: &Tree, kinds: &mut BTreeMap<String, Kinds>) -> Result<(), ApplyError> {
        let Some(reference) = ObjectRef::of(object) else { return Ok(()) };
        let (resource, namespace) = self.resource(&reference, kinds).await?;
        let mut object = object.clone();
        object.child("metadata").child("annotations").set(LABEL, file);
        if !namespace.is_empty() {
            object.child("metadata").set("namespace", namespace.as_str());
        }
        self.client.apply(resource, &namespace, &object, MANAGER).await?;
        Ok(())
    }

    /// The resource of an object, and its namespace.
    async fn resource(
        &self,
        object: &ObjectRef,
        kinds: &mut BTreeMap<String, Kinds>,
    ) -> Result<(Resource, String), ApplyError> {
        let version = &object.api_version;
        let unknown = || ApplyError::UnknownKind { api_version: version.clone(), kind: object.kind.clone() };
        if !kinds.get(version).is_some_and(|known| known.contains_key(&object.kind)) {
            let found = self.discover(version).await.map_err(|error| {
                match error.is_not_found() || error.is_path_not_found() {
                    true => unknown(),
                    false => error.into(),
                }
            })?;
            kinds.insert(version.clone(), found);
        }
        let info = kinds.get(version).and_then(|known| known.get(&object.kind)).ok_or_else(unknown)?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let namespace = match (info.is_namespaced, object.namespace.as_str()) {
            (false, _) => "",
            (true, "") => "default",
            (true, namespace) => namespace,
        };
        Ok((Resource::named(group, version, &info.plural), namespace.to_string()))
    }

    async fn discover(&self, version: &str) -> client::Result<Kinds> {
        let path = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let list = self.client.get_path(&path, "application/json").await?;
        let resources = list.list("resources").iter().filter(|one| !one.str("name").contains('/'));
        let info = |one: &Tree| KindInfo {
            plural: one.str("name").to_string(),
            is_namespaced: one.at("namespaced").as_bool() == Some(true),
        };
        Ok(resources.map(|one| (one.str("kind").to_string(), info(one))).collect())
    }

    /// Deletes what no file has any more; false if something is to be retried.
    async fn prune(&self, known: &[Inventory], current: &[Inventory], kinds: &mut BTreeMap<String, Kinds>) -> bool {
        let mut is_done = true;
        for (file, objects) in inventory::pruned(known, current, &self.host) {
            let left = self.delete_all(&objects, kinds).await;
            is_done &= left.is_empty();
            let after = current.iter().find(|one| one.file == file);
            let written = match after {
                Some(after) => {
                    let objects = &after.objects | &left;
                    self.write(&Inventory { objects, ..after.clone() }).await.map(drop)
                }
                None if left.is_empty() => {
                    let name = inventory::map_name(&file);
                    self.client.delete(MAPS, NAMESPACE, &name, DeleteOptions::default()).await.map(drop)
                }
                None => Ok(()),
            };
            is_done &= written.is_ok();
        }
        is_done
    }

    /// The objects that could not be deleted.
    async fn delete_all(
        &self,
        objects: &BTreeSet<ObjectRef>,
        kinds: &mut BTreeMap<String, Kinds>,
    ) -> BTreeSet<ObjectRef> {
        let mut left = BTreeSet::new();
        // Definitions and namespaces last: they take other objects with them.
        let mut ordered: Vec<&ObjectRef> = objects.iter().collect();
        ordered.sort_by_key(|object| FIRST.contains(&object.kind.as_str()));
        for object in ordered {
            match self.delete(object, kinds).await {
                Ok(()) | Err(ApplyError::UnknownKind { .. }) => {}
                Err(ApplyError::Client(error)) if error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(kind = object.kind, name = object.name, %error, "failed to prune object, retrying");
                    left.insert(object.clone());
                }
            }
        }
        left
    }

    /// An object that was created again by another client is not that of a manifest.
    async fn delete(&self, object: &ObjectRef, kinds: &mut BTreeMap<String, Kinds>) -> Result<(), ApplyError> {
        let (resource, namespace) = self.resource(object, kinds).await?;
        let found = self.client.get(resource, &namespace, &object.name).await?;
        let is_ours = found.map("metadata.annotations").get(LABEL).is_some();
        if is_ours {
            let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::of(&found) };
            self.client.delete(resource, &namespace, &object.name, options).await?;
        }
        Ok(())
    }

    async fn write(&self, inventory: &Inventory) -> client::Result<Tree> {
        self.client.apply(MAPS, NAMESPACE, &inventory.map(), MANAGER).await
    }

    /// Records what has changed. Objects that are to be pruned stay in the ConfigMap until they are deleted.
    async fn report(&self, before: Option<&Inventory>, after: &Inventory) -> client::Result<()> {
        let pending = before.map(|one| &one.objects | &after.objects).unwrap_or_else(|| after.objects.clone());
        if before.is_some_and(|one| one.error == after.error && one.host == after.host && one.objects == after.objects)
        {
            return Ok(());
        }
        let map = self.write(&Inventory { objects: pending, ..after.clone() }).await?;
        match after.error.as_str() {
            "" => {
                tracing::info!(file = after.file, objects = after.objects.len(), "applied manifest");
                let text = format!("Applied {} objects of {}", after.objects.len(), after.file);
                self.recorder.normal(&map, "ManifestApplied", text);
            }
            why if before.is_none_or(|one| one.error != why) => {
                tracing::warn!(file = after.file, error = why, "failed to apply manifest, retrying");
                self.recorder.warning(&map, "ManifestFailed", format!("Failed to apply {}: {why}", after.file));
            }
            _ => {}
        }
        Ok(())
    }
}
