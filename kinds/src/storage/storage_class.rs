//! StorageClass.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::qualified_name;

use super::rules;
use crate::kind::{Kind, Lifecycle, column};
use crate::podspec::warnings::labels;
use crate::{cells, gojson};

pub(crate) static KIND: Kind = Kind {
    short_names: &["sc"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Provisioner", "string", "", 0),
        column("ReclaimPolicy", "string", "", 0),
        column("VolumeBindingMode", "string", "", 0),
        column("AllowVolumeExpansion", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults,
    validate,
    validate_update,
    warnings,
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass")
};

const DEFAULT_MARKS: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, topology) in object.list("allowedTopologies").iter().enumerate() {
        for (number, expression) in topology.list("matchLabelExpressions").iter().enumerate() {
            if let Some(text) = labels::deprecation(expression.str("key")) {
                warnings.push(format!("allowedTopologies[{index}].matchLabelExpressions[{number}].key: {text}"));
            }
        }
    }
    warnings
}

fn set_defaults(object: &mut Tree) {
    object.set_default("reclaimPolicy", "Delete");
    object.set_default("volumeBindingMode", "Immediate");
}

fn validate(object: &Tree, errors: &mut Errors) {
    let provisioner = object.str("provisioner").to_lowercase();
    let path = Path::root("provisioner");
    match provisioner.is_empty() {
        true => errors.required(&path, ""),
        false => errors.invalid_all(&path, &provisioner, qualified_name(&provisioner)),
    }
    rules::validate_parameters(object.map("parameters"), &Path::root("parameters"), errors);
    let policy = object.str("reclaimPolicy");
    if !matches!(policy, "Delete" | "Retain") {
        errors.not_supported(&Path::root("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = object.str("volumeBindingMode");
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        let supported = &["Immediate", "WaitForFirstConsumer"];
        errors.not_supported(&Path::root("volumeBindingMode"), mode, supported);
    }
    rules::validate_topologies(object.list("allowedTopologies"), &Path::root("allowedTopologies"), errors);
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if object.at(field) != old.at(field) {
            errors.invalid(&Path::root(field), gojson::null(), "field is immutable");
        }
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let annotations = object.map("metadata.annotations");
    let default = DEFAULT_MARKS.iter().any(|mark| annotations.str(mark) == "true");
    let suffix = if default { " (default)" } else { "" };
    vec![
        Tree::from(format!("{}{suffix}", object.str("metadata.name"))),
        Tree::from(object.str("provisioner")),
        cells::text_or(object, "reclaimPolicy", "Delete"),
        cells::text_or(object, "volumeBindingMode", "Immediate"),
        Tree::Bool(object.bool("allowVolumeExpansion")),
        cells::age(object, now),
    ]
}
