//! Shared by the access reviews. They are never stored, and have no metadata except a namespace, so that the
//! ObjectMeta rules do not apply.

use api::field::{Errors, Path};
use api::{Tree, tree};

use crate::gojson::{self, EMPTY, GoField, field};

const NON_RESOURCE: &[GoField] = &[field("path", "Path", EMPTY), field("verb", "Verb", EMPTY)];

pub(crate) fn validate_attributes(object: &Tree, errors: &mut Errors) {
    let spec = object.at("spec");
    let (resource, other) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    if resource.is_null() == other.is_null() {
        let shown = if other.is_null() { gojson::null() } else { gojson::value(other, NON_RESOURCE) };
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&Path::root("spec"), shown, detail);
    }
    for selector in ["labelSelector", "fieldSelector"] {
        let path = Path::root("spec.resourceAttributes");
        validate_selector(resource.at(selector), &path.field(selector), errors);
    }
}

/// A selector has a raw text or requirements.
fn validate_selector(selector: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if selector.is_null() {
        return;
    }
    let (raw, requirements) = (selector.str("rawSelector"), selector.list("requirements"));
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.invalid(&path.field("rawSelector"), raw, detail);
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = "when fieldSelector or labelSelector is specified, requirements or rawSelector is required";
        errors.required(&path.field("requirements"), detail);
    }
    let list = path.field("requirements");
    for (index, requirement) in requirements.iter().enumerate() {
        let path = list.index(index);
        if requirement.str("key").is_empty() {
            errors.required(&path.field("key"), "must be specified");
        }
        validate_operator(requirement, &path, errors);
    }
}

fn validate_operator(requirement: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let empty = requirement.list("values").is_empty();
    match requirement.str("operator") {
        "In" | "NotIn" if empty => {
            errors.required(&path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !empty => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&path.field("values"), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        operator => errors.invalid(&path.field("operator"), operator, "not a valid selector operator"),
    }
}

pub(crate) fn validate_subject(object: &Tree, errors: &mut Errors) {
    if object.str("spec.user").is_empty() && object.list("spec.groups").is_empty() {
        errors.invalid(&Path::root("spec.user"), "", "at least one of user or group must be specified");
    }
}

pub(crate) fn validate_empty_meta(object: &Tree, errors: &mut Errors) {
    if has_meta(object, &["managedFields"]) {
        errors.invalid(&Path::root("metadata"), object.at("metadata"), "must be empty");
    }
}

/// A local review is about its own namespace.
pub(crate) fn validate_local(object: &Tree, errors: &mut Errors) {
    if has_meta(object, &["managedFields", "namespace"]) {
        errors.invalid(&Path::root("metadata"), object.at("metadata"), "must be empty except for namespace");
    }
    let attributes = object.at("spec.resourceAttributes");
    let namespace = attributes.str("namespace");
    if !attributes.is_null() && namespace != object.str("metadata.namespace") {
        let path = Path::root("spec.resourceAttributes.namespace");
        errors.invalid(&path, namespace, "must match metadata.namespace");
    }
    let other = object.at("spec.nonResourceAttributes");
    if !other.is_null() {
        let path = Path::root("spec.nonResourceAttributes");
        errors.invalid(&path, gojson::value(other, NON_RESOURCE), "disallowed on this kind of request");
    }
}

fn has_meta(object: &Tree, allowed: &[&str]) -> bool {
    let mut rest = object.at("metadata").clone();
    for field in allowed {
        rest.remove(field);
    }
    !rest.is_null() && rest != tree! {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_about_one_thing() {
        let check = |spec: Tree, want: &[&str]| {
            let mut errors = Errors::new();
            validate_attributes(&tree! { "spec" => spec }, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        let one = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        check(tree! { "resourceAttributes" => tree! { "verb" => "get" } }, &[]);
        check(tree! {}, &[&format!("spec: Invalid value: null: {one}")]);
        check(
            tree! { "resourceAttributes" => tree! {}, "nonResourceAttributes" => tree! { "path" => "/x" } },
            &[&format!("spec: Invalid value: {{\"Path\":\"/x\",\"Verb\":\"\"}}: {one}")],
        );
    }
}
