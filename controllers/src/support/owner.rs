//! Owner references, and which objects a controller adopts or releases by its selector.

use std::sync::Arc;

use api::selector::Selector;
use api::{Tree, list, tree};
use client::{Client, Error, Patch, Resource, Result};

/// The reference of the controlling owner.
pub(crate) fn controller_of(object: &Tree) -> Option<&Tree> {
    object.list("metadata.ownerReferences").iter().find(|owner| owner.bool("controller"))
}

pub(crate) fn is_controlled_by(object: &Tree, owner: &Tree) -> bool {
    controller_of(object).is_some_and(|reference| reference.str("uid") == owner.str("metadata.uid"))
}

/// The controlling owner reference to `owner`.
pub(crate) fn controller_reference(owner: &Tree) -> Tree {
    tree! {
        "apiVersion" => owner.str("apiVersion"),
        "kind" => owner.str("kind"),
        "name" => owner.str("metadata.name"),
        "uid" => owner.str("metadata.uid"),
        "controller" => true,
        "blockOwnerDeletion" => true,
    }
}

/// The objects of an owner, and those to adopt or release.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct OwnershipPlan {
    pub mine: Vec<Arc<Tree>>,
    pub adopt: Vec<Arc<Tree>>,
    pub release: Vec<Arc<Tree>>,
    /// A finalizer that is added and removed together with the owner reference; empty for none.
    pub finalizer: &'static str,
}

/// Controlled objects that match the selector are kept, objects that no longer match are released, and matching orphans
/// are adopted.
pub(crate) fn claim(owner: &Tree, selector: &Selector, objects: impl IntoIterator<Item = Arc<Tree>>) -> OwnershipPlan {
    let ends = owner.at("metadata").has("deletionTimestamp");
    let mut claim = OwnershipPlan::default();
    for object in objects {
        let chosen = selector.matches_map(object.map("metadata.labels"));
        match controller_of(&object) {
            Some(_) if !is_controlled_by(&object, owner) => {}
            Some(_) if chosen => claim.mine.push(object),
            Some(_) if ends => {}
            Some(_) => claim.release.push(object),
            None if ends || !chosen || object.at("metadata").has("deletionTimestamp") => {}
            None if object.str("metadata.namespace") != owner.str("metadata.namespace") => {}
            None => claim.adopt.push(object),
        }
    }
    claim
}

/// Adopts an object; the uid ensures that it is the observed one.
pub(crate) fn adopt_patch(owner: &Tree, object: &Tree) -> Tree {
    tree! {
        "metadata" => tree! {
            "ownerReferences" => list![controller_reference(owner)],
            "uid" => object.str("metadata.uid"),
        },
    }
}

/// Releases an object.
pub(crate) fn release_patch(owner: &Tree, object: &Tree) -> Tree {
    let reference = tree! { "$patch" => "delete", "uid" => owner.str("metadata.uid") };
    tree! {
        "metadata" => tree! { "ownerReferences" => list![reference], "uid" => object.str("metadata.uid") },
    }
}

/// Executes a claim; returns the objects that belong to the owner. `kind` is the owner's resource, `child` that of
/// the objects.
pub(crate) async fn execute(
    client: &Client,
    kind: Resource,
    owner: &Tree,
    child: Resource,
    claim: OwnershipPlan,
) -> Result<Vec<Arc<Tree>>> {
    let namespace = owner.str("metadata.namespace");
    if !claim.adopt.is_empty() {
        check_owner(client, kind, owner).await?;
    }
    let mut mine = claim.mine;
    for object in claim.adopt {
        let mut patch = adopt_patch(owner, &object);
        if !claim.finalizer.is_empty() {
            patch.child("metadata").set("finalizers", list![claim.finalizer]);
        }
        match client.patch(child, namespace, object.str("metadata.name"), "", Patch::Strategic(&patch)).await {
            Err(error) if error.is_not_found() => {}
            result => mine.push(Arc::new(result?)),
        }
    }
    for object in claim.release {
        let mut patch = release_patch(owner, &object);
        if !claim.finalizer.is_empty() {
            patch.child("metadata").set("$deleteFromPrimitiveList/finalizers", list![claim.finalizer]);
        }
        match client.patch(child, namespace, object.str("metadata.name"), "", Patch::Strategic(&patch)).await {
            // Deleted, or released already.
            Err(error) if error.is_not_found() || error.is_invalid() => {}
            result => drop(result?),
        }
    }
    Ok(mine)
}

/// Reads the owner from the server before adopting: the cache may not show its deletion yet.
async fn check_owner(client: &Client, kind: Resource, owner: &Tree) -> Result<()> {
    let (namespace, name) = (owner.str("metadata.namespace"), owner.str("metadata.name"));
    let fresh = client.get(kind, namespace, name).await?;
    let (uid, wanted) = (fresh.str("metadata.uid"), owner.str("metadata.uid"));
    if uid != wanted {
        return Err(Error::failed(format!("original {namespace}/{name} is gone: got uid {uid}, wanted {wanted}")));
    }
    if fresh.at("metadata").has("deletionTimestamp") {
        return Err(Error::failed(format!("{namespace}/{name} has just been deleted")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, label: &str, owner: &str, ends: bool) -> Arc<Tree> {
        let mut object = tree! {
            "apiVersion" => "apps/v1",
            "kind" => "ReplicaSet",
            "metadata" => tree! { "namespace" => "a", "name" => name, "uid" => name, "labels" => tree! { "app" => label } },
        };
        if !owner.is_empty() {
            let reference = tree! { "uid" => owner, "controller" => true };
            object.child("metadata").set("ownerReferences", list![reference]);
        }
        if ends {
            object.child("metadata").set("deletionTimestamp", "now");
        }
        Arc::new(object)
    }

    fn names(objects: &[Arc<Tree>]) -> String {
        objects.iter().map(|object| object.str("metadata.name")).collect()
    }

    #[test]
    fn claims_by_reference_and_selector() {
        let selector = Selector::parse("app=web").expect("a selector");
        let objects = [
            object("a", "web", "set", false),
            object("b", "other", "set", false),
            object("c", "web", "", false),
            object("d", "other", "", false),
            object("e", "web", "another", false),
            object("f", "web", "", true),
            object("g", "web", "set", true),
        ];
        let check = |owner: &Tree, want: (&str, &str, &str)| {
            let claim = claim(owner, &selector, objects.iter().cloned());
            assert_eq!((&*names(&claim.mine), &*names(&claim.adopt), &*names(&claim.release)), want);
        };
        check(&object("set", "", "", false), ("ag", "c", "b"));
        check(&object("set", "", "", true), ("ag", "", ""));
        let mut elsewhere = (*object("set", "", "", false)).clone();
        elsewhere.child("metadata").set("namespace", "b");
        check(&elsewhere, ("ag", "", "b"));
    }

    #[test]
    fn patches_have_the_uid() {
        let (owner, child) = (object("set", "", "", false), object("x", "", "", false));
        let adopt = adopt_patch(&owner, &child);
        assert_eq!(adopt.str("metadata.uid"), "x");
        let mut adopted = (*child).clone();
        adopted.child("metadata").set("ownerReferences", adopt.at("metadata.ownerReferences").clone());
        assert!(is_controlled_by(&adopted, &owner) && !is_controlled_by(&adopted, &child));
        assert_eq!(controller_of(&adopted).expect("an owner").str("kind"), "ReplicaSet");
        assert_eq!(release_patch(&owner, &child).list("metadata.ownerReferences")[0].str("$patch"), "delete");
    }
}
