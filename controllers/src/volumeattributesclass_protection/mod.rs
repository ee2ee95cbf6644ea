//! Protects VolumeAttributesClasses that a claim or a volume uses.

use std::sync::Arc;

use api::Tree;
use client::{Client, Index, Key, Resource, Result, Selection, Store};

use crate::support::finalizers;
use crate::support::volumes::{CLAIMS, VOLUMES};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const CLASSES: Selection = Selection::all(Resource::new("storage.k8s.io", "v1", "volumeattributesclasses"));
const FINALIZER: &str = "kubernetes.io/vac-protection";
/// Claims and volumes by the classes they name.
const BY_CLASS: Index = Index { name: "attributes-class", values: named };

fn named(object: &Tree) -> Vec<String> {
    let paths = [
        "spec.volumeAttributesClassName",
        "status.currentVolumeAttributesClassName",
        "status.modifyVolumeStatus.targetVolumeAttributesClassName",
    ];
    let mut names: Vec<String> = paths.iter().map(|path| object.str(path).to_string()).collect();
    names.retain(|name| !name.is_empty());
    names.dedup();
    names
}

struct Controller {
    classes: Arc<Store>,
    users: [Arc<Store>; 2],
    client: Client,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let queue = context.queue.clone();
    let classes = setup.informer(CLASSES);
    classes.on_change(move |change| queue.add(change.key.clone()));
    let users = [VOLUMES, CLAIMS].map(|selection| {
        let informer = setup.informer(selection);
        informer.index_by(BY_CLASS);
        let queue = context.queue.clone();
        // The change may have removed the last use of a class.
        informer.on_change(move |change| {
            let before = change.old.as_deref().map(named).unwrap_or_default();
            before.into_iter().for_each(|name| queue.add(Key::from(name)));
        });
        informer.store().clone()
    });
    Some(Box::new(Controller { classes: classes.store().clone(), users, client: context.client.clone() }))
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Outcome> {
        let Some(class) = self.classes.get(name) else { return Ok(Outcome::Done) };
        let is_used = || self.users.iter().any(|users| !users.find_keys(BY_CLASS, name).is_empty());
        let Some(changed) = finalizers::protect(&class, FINALIZER, is_used) else { return Ok(Outcome::Done) };
        if finalizers::has(&class, FINALIZER) && self.is_used_now(name).await? {
            return Ok(Outcome::Done);
        }
        finalizers::write(&self.client, CLASSES.resource, &changed).await
    }

    /// An object created just before the deletion may not be in the informer yet, so they are listed from the server.
    async fn is_used_now(&self, name: &str) -> Result<bool> {
        for users in [VOLUMES, CLAIMS] {
            let list = self.client.list(users.resource, "", "").await?;
            if list.list("items").iter().any(|user| named(user).iter().any(|other| other == name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn counts_all_class_references() {
        let status = tree! {
            "currentVolumeAttributesClassName" => "b",
            "modifyVolumeStatus" => tree! { "targetVolumeAttributesClassName" => "c" },
        };
        let claim = tree! { "spec" => tree! { "volumeAttributesClassName" => "a" }, "status" => status };
        assert_eq!(named(&claim), ["a", "b", "c"]);
        assert_eq!(named(&tree! {}), [""; 0]);
    }
}
