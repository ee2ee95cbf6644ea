//! The prepare rules that most kinds share: who owns status and generation.

use api::Tree;

use crate::kind::{Context, bump_generation, keep_old};

/// A new object has no status; its generation counts from one.
pub fn new_with_generation(object: &mut Tree, _: &Context<'_>) {
    object.remove("status");
    object.child("metadata").set("generation", 1);
}

/// A new object has no status.
pub fn new_without_status(object: &mut Tree, _: &Context<'_>) {
    object.remove("status");
}

/// Status stays; a new spec raises the generation.
pub fn update_with_generation(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "status");
    bump_generation(object, old, &["spec"]);
}

/// Status stays.
pub fn update_without_status(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "status");
}

/// A write of `/status` leaves the spec.
pub fn status_keeps_spec(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "spec");
    keep_generation(object, old);
}

/// Generation is the server's, whatever the client sent.
pub fn keep_generation(object: &mut Tree, old: &Tree) {
    bump_generation(object, old, &[]);
}
