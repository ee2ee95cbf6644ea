//! Prepare functions of kinds whose generation counts spec changes.

use api::Tree;

use crate::kind::{Context, bump_generation, keep_old};
use crate::prepare;

/// Clears the status and sets the generation to one.
pub(crate) fn create(object: &mut Tree, context: &Context<'_>) {
    prepare::no_status(object, context);
    prepare::first_generation(object);
}

/// Keeps the status; a changed spec increments the generation.
pub(crate) fn update(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "status");
    bump_generation(object, old, &["spec"]);
}

/// Keeps the spec and its generation on a status update.
pub(crate) fn update_status(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    keep_old(object, old, "spec");
    bump_generation(object, old, &[]);
}
