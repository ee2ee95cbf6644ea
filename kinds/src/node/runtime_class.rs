//! RuntimeClass.

use std::collections::HashSet;

use api::field::{Errors, Path};
use api::validation::dns1123_label;
use api::{Tree, json};

use crate::kind::{Kind, column};
use crate::meta::validate_labels;
use crate::podspec::warnings::labels;
use crate::{cells, gojson, podspec, resources};

pub(crate) static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Handler", "string", "", 0), column("Age", "string", "", 0)],
    validate,
    validate_update,
    warnings,
    create_on_update: true,
    unconditional_update: false,
    cells,
    ..Kind::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
};

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let keys = object.map("scheduling.nodeSelector").keys();
    keys.filter_map(|key| Some(format!("scheduling.nodeSelector: {}", labels::deprecation(key)?))).collect()
}

fn validate(object: &Tree, errors: &mut Errors) {
    match object.str("handler") {
        "" => errors.required(&Path::root("handler"), ""),
        handler => errors.invalid_all(&Path::root("handler"), handler, dns1123_label(handler)),
    }
    validate_overhead(object, errors);
    let path = Path::root("scheduling");
    validate_labels(object.map("scheduling.nodeSelector"), &path.field("nodeSelector"), errors);
    validate_tolerations(object.list("scheduling.tolerations"), &path.field("tolerations"), errors);
}

/// Upstream validates the overhead like the limits of a container, with those paths.
fn validate_overhead(object: &Tree, errors: &mut Errors) {
    let fixed = object.map("overhead.podFixed");
    let path = Path::root("overhead.limits");
    for (name, quantity) in fixed.iter() {
        resources::validate_container_name(name, &path.key(name), errors);
        resources::validate_quantity(name, quantity, &path.key(name), errors);
    }
    let huge = fixed.keys().any(resources::is_huge_page);
    if huge && !fixed.contains("cpu") && !fixed.contains("memory") {
        errors.forbidden(&Path::root("overhead"), "HugePages require cpu or memory");
    }
}

fn validate_tolerations(tolerations: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    podspec::toleration::validate(tolerations, path, errors);
    let mut seen = HashSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(json::encode(toleration, None)) {
            errors.duplicate(&path.index(index), toleration);
        }
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    if object.str("handler") != old.str("handler") {
        errors.invalid(&Path::root("handler"), gojson::null(), "field is immutable");
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![cells::name(object), Tree::from(object.str("handler")), cells::age(object, now)]
}
