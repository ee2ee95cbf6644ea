//! Shared status rules of both kinds.

use api::Tree;
use api::field::{Errors, Path};

use crate::kind::Context;
use crate::podspec::small_set::SmallSet;
use crate::prepare;

pub(super) fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    prepare::no_status(object, context);
    prepare::first_generation(object);
}

pub(crate) fn validate_status(object: &Tree, errors: &mut Errors) {
    let conditions = object.list("status.conditions");
    let path = Path::root("status.conditions");
    let mut seen = SmallSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let (path, ty) = (path.index(index), condition.str("type"));
        if !seen.insert(ty) {
            errors.duplicate(&path.field("type"), ty);
        }
        if ty.is_empty() {
            errors.required(&path.field("type"), "must not be empty");
        }
    }
}
