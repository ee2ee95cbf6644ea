//! PriorityClass.

use api::Tree;
use api::field::{Errors, Path};

use crate::kind::{Kind, column};
use crate::meta::validate_immutable;
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    short_names: &["pc"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Value", "integer", "", 0),
        column("Global-Default", "boolean", "", 0),
        column("Age", "string", "", 0),
        column("PreemptionPolicy", "string", "", 0),
    ],
    set_defaults: |object| object.set_default("preemptionPolicy", "PreemptLowerPriority"),
    prepare_create: |object, _| prepare::first_generation(object),
    validate,
    validate_update,
    cells,
    ..Kind::cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass")
};

const HIGHEST_USER_VALUE: i64 = 1_000_000_000;
/// The built-in classes with their values.
pub(crate) const SYSTEM: &[(&str, i64)] =
    &[("system-node-critical", 2 * HIGHEST_USER_VALUE + 1000), ("system-cluster-critical", 2 * HIGHEST_USER_VALUE)];

fn validate(object: &Tree, errors: &mut Errors) {
    let value = object.int("value").unwrap_or(0);
    if object.str("metadata.name").starts_with("system-") {
        validate_system(object, value, errors);
    } else if value > HIGHEST_USER_VALUE {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_VALUE}");
        errors.forbidden(&Path::root("value"), &detail);
    }
    let policy = object.str("preemptionPolicy");
    if !matches!(policy, "PreemptLowerPriority" | "Never" | "") {
        let supported = &["PreemptLowerPriority", "Never"];
        errors.not_supported(&Path::root("preemptionPolicy"), policy, supported);
    }
}

fn validate_system(object: &Tree, value: i64, errors: &mut Errors) {
    let name = object.str("metadata.name");
    let problem = match SYSTEM.iter().find(|(known, _)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known)) if *known != value => format!("value of {name} PriorityClass must be {known}"),
        Some(_) if object.bool("globalDefault") => format!("globalDefault of {name} PriorityClass must be false"),
        Some(_) => return,
    };
    let detail =
        format!("priority class names with 'system-' prefix are reserved for system use only. error: {problem}");
    errors.forbidden(&Path::root("metadata.name"), &detail);
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    if object.int("value") != old.int("value") {
        errors.forbidden(&Path::root("value"), "may not be changed in an update.");
    }
    let path = Path::root("preemptionPolicy");
    validate_immutable(object.at("preemptionPolicy"), old.at("preemptionPolicy"), &path, errors);
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![
        cells::name(object),
        Tree::Int(object.int("value").unwrap_or(0)),
        Tree::Bool(object.bool("globalDefault")),
        cells::age(object, now),
        Tree::from(object.str("preemptionPolicy")),
    ]
}
