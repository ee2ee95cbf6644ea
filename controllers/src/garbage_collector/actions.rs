//! Executes the decisions. Every write has the uid and version that the decision was based on; after a conflict the
//! object is read and decided on again.

use api::{Tree, tree};
use client::{DeleteOptions, Error, Patch, Propagation, Resource, Result};

use super::graph::OwnerDescription;
use super::object::{FOREGROUND, ORPHAN, Object, TypeMeta, Uid};
use super::plan::{OwnerLookup, Policy, Step};
use super::{Collector, queue};
use crate::support::batch;

/// The request path of an object.
struct ObjectPath {
    resource: Resource,
    namespace: String,
    name: String,
}

impl Collector {
    /// Looks up an owner on the server.
    pub(super) async fn fetch_owner(&self, owner: &OwnerDescription) -> Result<OwnerLookup> {
        let discovery = self.metadata_monitor.discovery().await;
        let Some(served) = discovery.find_kind(owner.of.group(), &owner.of.kind) else {
            return Err(unknown(&owner.of));
        };
        if served.namespaced && owner.namespace.is_empty() {
            return Ok(OwnerLookup::Impossible);
        }
        let namespace = if served.namespaced { &*owner.namespace } else { "" };
        match self.context.client.get_metadata(served.resource(), namespace, &owner.name).await {
            Ok(found) if found.str("metadata.uid") == owner.uid.to_string() => {
                let finalizers = found.list("metadata.finalizers").iter().filter_map(Tree::as_str);
                let is_deleted = found.at("metadata").has("deletionTimestamp");
                Ok(OwnerLookup::Present {
                    waiting: is_deleted && finalizers.into_iter().any(|name| name == FOREGROUND),
                })
            }
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                self.graph.lock().note_absent(owner.clone());
                Ok(OwnerLookup::Absent)
            }
        }
    }

    pub(super) async fn actions(&self, uid: &Uid, step: Step) -> Result<()> {
        match step {
            Step::Nothing | Step::FetchOwner(_) => Ok(()),
            Step::Delete { policy, unblock } => self.delete(uid, policy, unblock).await,
            Step::Release(owners) => self.release(uid, &owners).await,
            Step::Unblock => {
                self.unblock(uid).await?;
                self.graph.lock().note_delete_requested(uid, true);
                Ok(())
            }
            Step::Finish(finalizer) => self.finish(uid, finalizer).await,
            Step::Orphan(dependents) => {
                let release = |dependent| self.release(dependent, std::slice::from_ref(uid));
                let release: Vec<_> = dependents.iter().map(release).collect();
                for released in batch::bounded(release).await {
                    released?;
                }
                self.finish(uid, ORPHAN).await
            }
        }
    }

    async fn delete(&self, uid: &Uid, policy: Policy, unblock: bool) -> Result<()> {
        if unblock {
            self.unblock(uid).await?;
        }
        let Some(object) = self.cached_object(uid) else { return Ok(()) };
        let path = self.path(&object).await?;
        let (uid_text, version) = (uid.to_string(), object.version.to_string());
        let options = DeleteOptions {
            uid: Some(&uid_text),
            resource_version: Some(&version),
            propagation: Some(match policy {
                Policy::Background => Propagation::Background,
                Policy::Foreground => Propagation::Foreground,
                Policy::Orphan => Propagation::Orphan,
            }),
            ..DeleteOptions::default()
        };
        self.graph.lock().note_delete_requested(uid, true);
        let result = self.context.client.delete(path.resource, &path.namespace, &path.name, options).await;
        if result.is_err() {
            self.graph.lock().note_delete_requested(uid, false);
        }
        // The object in the response may be deleted already, which the response does not show.
        self.handle_result(uid, &path, result.map(|_| Tree::Null)).await
    }

    /// Removes owner references from an object.
    async fn release(&self, uid: &Uid, owners: &[Uid]) -> Result<()> {
        let pieces: Vec<Tree> =
            owners.iter().map(|owner| tree! { "$patch" => "delete", "uid" => owner.to_string() }).collect();
        let without = |mut references: Vec<Tree>| {
            references.retain(|reference| !owners.contains(&Uid::from(reference.str("uid"))));
            references
        };
        self.patch_owners(uid, pieces, &without).await
    }

    /// Clears `blockOwnerDeletion` of all owner references.
    async fn unblock(&self, uid: &Uid) -> Result<()> {
        let Some(object) = self.cached_object(uid) else { return Ok(()) };
        let free = |owner: &Uid| tree! { "uid" => owner.to_string(), "blockOwnerDeletion" => false };
        let pieces = object.owners.iter().filter(|owner| owner.blocks).map(|owner| free(&owner.uid)).collect();
        let unblocked = |mut references: Vec<Tree>| {
            references.iter_mut().for_each(|reference| reference.set("blockOwnerDeletion", false));
            references
        };
        self.patch_owners(uid, pieces, &unblocked).await
    }

    /// By strategic merge patch; custom resources do not support it and get the whole list as a merge patch.
    async fn patch_owners(
        &self,
        uid: &Uid,
        pieces: Vec<Tree>,
        change: &(dyn Fn(Vec<Tree>) -> Vec<Tree> + Sync),
    ) -> Result<()> {
        let Some(object) = self.cached_object(uid) else { return Ok(()) };
        let path = self.path(&object).await?;
        let patch = tree! { "metadata" => tree! { "uid" => uid.to_string(), "ownerReferences" => pieces } };
        let client = &self.context.client;
        let patched = client.patch(path.resource, &path.namespace, &path.name, "", Patch::Strategic(&patch)).await;
        if !patched.as_ref().is_err_and(Error::is_unsupported_media_type) {
            return self.handle_result(uid, &path, patched).await;
        }
        let Some(live) = self.refresh(uid, &path).await? else { return Ok(()) };
        let references = change(live.list("metadata.ownerReferences").to_vec());
        let metadata = tree! {
            "uid" => uid.to_string(),
            "resourceVersion" => live.str("metadata.resourceVersion"),
            "ownerReferences" => references,
        };
        let patch = tree! { "metadata" => metadata };
        let patched = client.patch(path.resource, &path.namespace, &path.name, "", Patch::Merge(&patch)).await;
        self.handle_result(uid, &path, patched).await
    }

    async fn finish(&self, uid: &Uid, finalizer: &str) -> Result<()> {
        let Some(object) = self.cached_object(uid) else { return Ok(()) };
        let path = self.path(&object).await?;
        let others = object.finalizers.iter().filter(|name| *name != finalizer);
        let others: Vec<Tree> = others.map(|name| Tree::from(name.as_str())).collect();
        let metadata = tree! { "resourceVersion" => object.version.to_string(), "finalizers" => others };
        let patch = tree! { "metadata" => metadata };
        let patched = self.context.client.patch(path.resource, &path.namespace, &path.name, "", Patch::Merge(&patch));
        let result = patched.await;
        self.handle_result(uid, &path, result).await
    }

    fn cached_object(&self, uid: &Uid) -> Option<Object> {
        self.graph.lock().get(uid).cloned()
    }

    async fn path(&self, object: &Object) -> Result<ObjectPath> {
        let discovery = self.metadata_monitor.discovery().await;
        let served = discovery.find_kind(object.of.group(), &object.of.kind).ok_or_else(|| unknown(&object.of))?;
        let (namespace, name) = (object.namespace.to_string(), object.name.to_string());
        Ok(ObjectPath { resource: served.resource(), namespace, name })
    }

    /// A deleted object needs no further work; a changed object is read again for the next attempt.
    async fn handle_result(&self, uid: &Uid, path: &ObjectPath, result: Result<Tree>) -> Result<()> {
        match result {
            Ok(answer) => {
                self.add_from_response(uid, &answer);
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.remove_object(uid);
                Ok(())
            }
            Err(error) if error.is_conflict() => match self.refresh(uid, path).await? {
                Some(_) => Err(error),
                None => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    /// Reads an object into the graph; None if it was deleted.
    async fn refresh(&self, uid: &Uid, path: &ObjectPath) -> Result<Option<Tree>> {
        match self.context.client.get_metadata(path.resource, &path.namespace, &path.name).await {
            Ok(live) if live.str("metadata.uid") == uid.to_string() => {
                self.add_from_response(uid, &live);
                Ok(Some(live))
            }
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                self.remove_object(uid);
                Ok(None)
            }
        }
    }

    /// Adds an object from a response to the graph, ahead of the watch.
    fn add_from_response(&self, uid: &Uid, answer: &Tree) {
        let mut graph = self.graph.lock();
        let Some(of) = graph.get(uid).map(|known| known.of.clone()) else { return };
        if answer.str("metadata.uid") == uid.to_string() {
            let object = Object::read(of, answer, &mut graph.intern);
            queue(&self.context, &graph.put(object));
        }
    }

    fn remove_object(&self, uid: &Uid) {
        let work_items = self.graph.lock().delete(uid);
        queue(&self.context, &work_items);
    }
}

fn unknown(of: &TypeMeta) -> Error {
    Error::failed(format!("no resource found for {}, Kind={}", of.api_version, of.kind))
}
