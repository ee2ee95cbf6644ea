//! ResourceClaimTemplate.

use api::Tree;
use api::field::{Errors, Path};

use super::claim;
use crate::gojson;
use crate::kind::{Kind, Lifecycle};
use crate::meta::{validate_annotations, validate_labels};

pub(crate) static KIND: Kind = Kind {
    set_defaults: |object| claim::set_defaults(object.child("spec.spec")),
    validate,
    validate_update,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::namespaced(
        "resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        "resourceclaimtemplate",
    )
};

fn validate(object: &Tree, errors: &mut Errors) {
    let path = Path::root("spec");
    let meta = path.field("metadata");
    validate_annotations(object.map("spec.metadata.annotations"), &meta.field("annotations"), errors);
    validate_labels(object.map("spec.metadata.labels"), &meta.field("labels"), errors);
    claim::validate(object.at("spec.spec"), &path.field("spec"), errors);
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    if object.at("spec") != old.at("spec") {
        errors.invalid(&Path::root("spec"), gojson::null(), "field is immutable");
    }
}
