//! The prepare rules of kinds whose generation counts the changes of their spec.

use api::Tree;

use crate::kind::{Context, bump_generation, keep_old};
use crate::prepare;

/// A new object has no status; its generation counts from one.
pub fn create(object: &mut Tree, context: &Context<'_>) {
    prepare::no_status(object, context);
    prepare::first_generation(object);
}

/// Status stays; a new spec raises the generation.
pub fn update(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "status");
    bump_generation(object, old, &["spec"]);
}

/// A write of `/status` leaves the spec and its generation.
pub fn update_status(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "spec");
    bump_generation(object, old, &[]);
}
