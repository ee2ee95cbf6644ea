//! Finalizers that protect objects in use.

use api::Tree;
use client::{Client, Resource, Result};

use super::volumes::is_deleting;
use crate::Outcome;

pub(crate) fn has(object: &Tree, finalizer: &str) -> bool {
    object.list("metadata.finalizers").iter().any(|other| other.as_str() == Some(finalizer))
}

pub(crate) fn add(object: &mut Tree, finalizer: &str) {
    if !has(object, finalizer) {
        object.child("metadata").list_entry("finalizers").push(finalizer.into());
    }
}

pub(crate) fn remove(object: &mut Tree, finalizer: &str) {
    object.child("metadata").list_entry("finalizers").retain(|other| other.as_str() != Some(finalizer));
}

/// The object with the finalizer added while it is not deleted, and removed once it is deleted and unused. None if
/// nothing changes. `is_used` is only called if it matters.
pub(crate) fn protect(object: &Tree, finalizer: &str, is_used: impl FnOnce() -> bool) -> Option<Tree> {
    let mut changed = object.clone();
    match (is_deleting(object), has(object, finalizer)) {
        (false, false) => add(&mut changed, finalizer),
        (true, true) if !is_used() => remove(&mut changed, finalizer),
        _ => return None,
    }
    Some(changed)
}

/// Writes an object with changed finalizers; a deleted one needs none.
pub(crate) async fn write(client: &Client, resource: Resource, object: &Tree) -> Result<Outcome> {
    let (namespace, name) = (object.str("metadata.namespace"), object.str("metadata.name"));
    match client.update(resource, namespace, name, object).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(Outcome::Done),
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn protects_objects_in_use() {
        let check = |deleting: bool, finalizers: Tree, used: bool, want: Option<&[&str]>| {
            let mut object = tree! { "metadata" => tree! { "finalizers" => finalizers } };
            if deleting {
                object.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
            }
            let changed = protect(&object, "f", || used);
            let got = changed
                .as_ref()
                .map(|tree| tree.list("metadata.finalizers").iter().filter_map(Tree::as_str).collect::<Vec<_>>());
            assert_eq!(got.as_deref(), want, "{object:?} {used}");
        };
        check(false, list!["a"], true, Some(&["a", "f"]));
        check(false, list!["a", "f"], false, None);
        check(true, list!["a", "f"], true, None);
        check(true, list!["a", "f"], false, Some(&["a"]));
        check(true, list!["a"], false, None);
    }
}
