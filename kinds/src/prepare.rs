//! What many kinds do before validation: a spec and a status that each path to the object keeps apart.

use api::Tree;
use api::field::Errors;

use crate::kind::{Context, keep_old};

/// A create brings no status.
pub fn no_status(object: &mut Tree, _: &Context<'_>) {
    object.remove("status");
}

/// A write to the main resource leaves the status alone.
pub fn keep_status(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "status");
}

/// A write to the status leaves the spec alone.
pub fn keep_spec(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "spec");
}

/// A write to the status that changes nothing else, labels and annotations included.
pub fn keep_all_but_status(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    keep_spec(object, old, context);
    keep_meta(object, old);
}

/// Puts back what of the metadata a client may write, except managed fields.
pub fn keep_meta(object: &mut Tree, old: &Tree) {
    let meta = object.child("metadata");
    for field in ["annotations", "finalizers", "generation", "labels", "ownerReferences"] {
        keep_old(meta, old.at("metadata"), field);
    }
}

/// The first generation of a kind that counts them.
pub fn first_generation(object: &mut Tree) {
    object.child("metadata").set("generation", 1);
}

/// A status whose shape is all that is asked of it.
pub fn any_status(_: &Tree, _: &Tree, _: &mut Errors) {}
