//! Prepare functions shared by many kinds: spec and status are only changed through their own endpoint.

use api::Tree;
use api::field::Errors;

use crate::kind::{Context, keep_old};

/// Clears the status on create.
pub(crate) fn no_status(object: &mut Tree, _: &Context<'_>) {
    object.remove("status");
}

/// Keeps the stored status on an update of the main resource.
pub(crate) fn keep_status(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "status");
}

/// Keeps the stored spec on a status update.
pub(crate) fn keep_spec(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "spec");
}

/// A status update that changes nothing else, including labels and annotations.
pub(crate) fn keep_all_but_status(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    keep_spec(object, old, context);
    keep_meta(object, old);
}

/// Restores the writable metadata, except managed fields.
pub(crate) fn keep_meta(object: &mut Tree, old: &Tree) {
    let meta = object.child("metadata");
    for field in ["annotations", "finalizers", "generation", "labels", "ownerReferences"] {
        keep_old(meta, old.at("metadata"), field);
    }
}

/// The initial generation.
pub(crate) fn first_generation(object: &mut Tree) {
    object.child("metadata").set("generation", 1);
}

/// A status without further rules.
pub(crate) fn any_status(_: &Tree, _: &Tree, _: &mut Errors) {}
