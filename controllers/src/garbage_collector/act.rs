//! Carries out what was decided. Every write names the very object that was judged; where it has changed
//! since, it is read and judged again.

use api::{Tree, tree};
use client::{DeleteOptions, Error, Patch, Propagation, Resource, Result};

use super::graph::Description;
use super::object::{FOREGROUND, ORPHAN, Object, Type, Uid};
use super::plan::{Policy, Step, Verdict};
use super::{Collector, queue};
use crate::support::batch;

/// Where an object is, as requests name it.
struct Place {
    resource: Resource,
    namespace: String,
    name: String,
}

impl Collector {
    /// What the server says of an owner.
    pub(super) async fn ask(&self, owner: &Description) -> Result<Verdict> {
        let discovery = self.everything.discovery().await;
        let Some(served) = discovery.of_kind(owner.of.group(), &owner.of.kind) else {
            return Err(unknown(&owner.of));
        };
        if served.namespaced && owner.namespace.is_empty() {
            return Ok(Verdict::Impossible);
        }
        let namespace = if served.namespaced { &*owner.namespace } else { "" };
        match self.context.client.get_metadata(served.resource(), namespace, &owner.name).await {
            Ok(found) if found.str("metadata.uid") == owner.uid.to_string() => {
                let finalizers = found.list("metadata.finalizers").iter().filter_map(Tree::as_str);
                let is_deleted = found.at("metadata").has("deletionTimestamp");
                Ok(Verdict::Present { waiting: is_deleted && finalizers.into_iter().any(|name| name == FOREGROUND) })
            }
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                self.graph.lock().note_absent(owner.clone());
                Ok(Verdict::Absent)
            }
        }
    }

    pub(super) async fn act(&self, uid: &Uid, step: Step) -> Result<()> {
        match step {
            Step::Nothing | Step::Ask(_) => Ok(()),
            Step::Delete { policy, unblock } => self.delete(uid, policy, unblock).await,
            Step::Release(owners) => self.release(uid, &owners).await,
            Step::Unblock => {
                self.unblock(uid).await?;
                self.graph.lock().note_asked(uid, true);
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
        let Some(object) = self.known(uid) else { return Ok(()) };
        let place = self.place(&object).await?;
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
        self.graph.lock().note_asked(uid, true);
        let result = self.context.client.delete(place.resource, &place.namespace, &place.name, options).await;
        if result.is_err() {
            self.graph.lock().note_asked(uid, false);
        }
        // The object of the answer may be gone already, and says nothing of that.
        self.settle(uid, &place, result.map(|_| Tree::Null)).await
    }

    /// Takes owners out of an object.
    async fn release(&self, uid: &Uid, owners: &[Uid]) -> Result<()> {
        let pieces: Vec<Tree> =
            owners.iter().map(|owner| tree! { "$patch" => "delete", "uid" => owner.to_string() }).collect();
        let without = |mut references: Vec<Tree>| {
            references.retain(|reference| !owners.contains(&Uid::from(reference.str("uid"))));
            references
        };
        self.patch_owners(uid, pieces, &without).await
    }

    /// Lets no owner wait for an object.
    async fn unblock(&self, uid: &Uid) -> Result<()> {
        let Some(object) = self.known(uid) else { return Ok(()) };
        let free = |owner: &Uid| tree! { "uid" => owner.to_string(), "blockOwnerDeletion" => false };
        let pieces = object.owners.iter().filter(|owner| owner.blocks).map(|owner| free(&owner.uid)).collect();
        let unblocked = |mut references: Vec<Tree>| {
            references.iter_mut().for_each(|reference| reference.set("blockOwnerDeletion", false));
            references
        };
        self.patch_owners(uid, pieces, &unblocked).await
    }

    /// By strategic merge; custom resources do not know that, and get their whole list.
    async fn patch_owners(
        &self,
        uid: &Uid,
        pieces: Vec<Tree>,
        change: &(dyn Fn(Vec<Tree>) -> Vec<Tree> + Sync),
    ) -> Result<()> {
        let Some(object) = self.known(uid) else { return Ok(()) };
        let place = self.place(&object).await?;
        let patch = tree! { "metadata" => tree! { "uid" => uid.to_string(), "ownerReferences" => pieces } };
        let client = &self.context.client;
        let patched = client.patch(place.resource, &place.namespace, &place.name, "", Patch::Strategic(&patch)).await;
        if !patched.as_ref().is_err_and(Error::is_unsupported_media_type) {
            return self.settle(uid, &place, patched).await;
        }
        let Some(live) = self.refresh(uid, &place).await? else { return Ok(()) };
        let references = change(live.list("metadata.ownerReferences").to_vec());
        let metadata = tree! {
            "uid" => uid.to_string(),
            "resourceVersion" => live.str("metadata.resourceVersion"),
            "ownerReferences" => references,
        };
        let patch = tree! { "metadata" => metadata };
        let patched = client.patch(place.resource, &place.namespace, &place.name, "", Patch::Merge(&patch)).await;
        self.settle(uid, &place, patched).await
    }

    async fn finish(&self, uid: &Uid, finalizer: &str) -> Result<()> {
        let Some(object) = self.known(uid) else { return Ok(()) };
        let place = self.place(&object).await?;
        let others = object.finalizers.iter().filter(|name| *name != finalizer);
        let others: Vec<Tree> = others.map(|name| Tree::from(name.as_str())).collect();
        let metadata = tree! { "resourceVersion" => object.version.to_string(), "finalizers" => others };
        let patch = tree! { "metadata" => metadata };
        let patched =
            self.context.client.patch(place.resource, &place.namespace, &place.name, "", Patch::Merge(&patch));
        let result = patched.await;
        self.settle(uid, &place, result).await
    }

    fn known(&self, uid: &Uid) -> Option<Object> {
        self.graph.lock().get(uid).cloned()
    }

    async fn place(&self, object: &Object) -> Result<Place> {
        let discovery = self.everything.discovery().await;
        let served = discovery.of_kind(object.of.group(), &object.of.kind).ok_or_else(|| unknown(&object.of))?;
        let (namespace, name) = (object.namespace.to_string(), object.name.to_string());
        Ok(Place { resource: served.resource(), namespace, name })
    }

    /// What is gone is as good as done. What has changed is read, so that the next look sees it.
    async fn settle(&self, uid: &Uid, place: &Place, result: Result<Tree>) -> Result<()> {
        match result {
            Ok(answer) => {
                self.take(uid, &answer);
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.forget(uid);
                Ok(())
            }
            Err(error) if error.is_conflict() => match self.refresh(uid, place).await? {
                Some(_) => Err(error),
                None => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    /// Reads an object into the graph; None where it is gone.
    async fn refresh(&self, uid: &Uid, place: &Place) -> Result<Option<Tree>> {
        match self.context.client.get_metadata(place.resource, &place.namespace, &place.name).await {
            Ok(live) if live.str("metadata.uid") == uid.to_string() => {
                self.take(uid, &live);
                Ok(Some(live))
            }
            Err(error) if !error.is_not_found() => Err(error),
            _ => {
                self.forget(uid);
                Ok(None)
            }
        }
    }

    /// Brings an object as an answer shows it into the graph, ahead of the watch.
    fn take(&self, uid: &Uid, answer: &Tree) {
        let mut graph = self.graph.lock();
        let Some(of) = graph.get(uid).map(|known| known.of.clone()) else { return };
        if answer.str("metadata.uid") == uid.to_string() {
            let object = Object::read(of, answer, &mut graph.intern);
            queue(&self.context, &graph.put(object));
        }
    }

    fn forget(&self, uid: &Uid) {
        let todo = self.graph.lock().delete(uid);
        queue(&self.context, &todo);
    }
}

fn unknown(of: &Type) -> Error {
    Error::Failed(format!("no resource is known for {}, Kind={}", of.api_version, of.kind))
}
