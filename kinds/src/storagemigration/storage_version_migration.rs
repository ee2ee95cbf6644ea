//! StorageVersionMigration.

use api::Tree;
use api::field::{Errors, Path};

use crate::conditions::validate_conditions;
use crate::gojson;
use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    upstream_version: Some("v1beta1"),
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[column("Name", "string", "", 0), column("Resource", "string", "", 0), column("Status", "string", "", 0)],
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: validate_status_update,
        reset: &["spec", "metadata"],
    }),
    unconditional_update: false,
    cells,
    ..Kind::cluster(
        "storagemigration.k8s.io",
        "v1",
        "StorageVersionMigration",
        "storageversionmigrations",
        "storageversionmigration",
    )
};

fn validate(object: &Tree, errors: &mut Errors) {
    if object.str("spec.resource.resource").is_empty() {
        errors.required(&Path::root("spec.resource.resource"), "resource is required");
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate(object, errors);
    if object.at("spec") != old.at("spec") {
        errors.invalid(&Path::root("spec"), gojson::null(), "field is immutable");
    }
}

fn validate_status_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let version = object.str("status.resourceVersion");
    let path = Path::root("status.resourceVersion");
    if !version.is_empty() && version.parse::<u64>().is_err() {
        errors.invalid(&path, version, "must be a non-negative integer");
    }
    let stored = old.str("status.resourceVersion");
    if !stored.is_empty() && stored != version {
        errors.invalid(&path, version, "field is immutable");
    }
    let path = Path::root("status.conditions");
    validate_conditions(object.list("status.conditions"), &path, errors);
    validate_outcome(object, old, &path, errors);
}

/// A finished migration is immutable, with one result.
fn validate_outcome(object: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut refuse = |detail: &str| errors.invalid(path, object.at("status.conditions"), detail);
    let [succeeded, failed] = ["Succeeded", "Failed"].map(|ty| is_true(object, ty));
    if succeeded && failed {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    if is_true(old, "Succeeded") && !succeeded {
        refuse("Success condition cannot be set to false once it is true");
    }
    if is_true(old, "Failed") && !failed {
        refuse("Failed condition cannot be set to false once it is true");
    }
}

fn is_true(object: &Tree, ty: &str) -> bool {
    let conditions = object.list("status.conditions").iter();
    conditions.into_iter().any(|condition| condition.str("type") == ty && condition.str("status") == "True")
}

fn cells(object: &Tree, _: i64) -> Vec<Tree> {
    let (group, resource) = (object.str("spec.resource.group"), object.str("spec.resource.resource"));
    let resource = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
    let states = ["Succeeded", "Failed", "Running"];
    let state = states.into_iter().find(|ty| is_true(object, ty)).unwrap_or("Unknown");
    vec![cells::name(object), Tree::from(resource), Tree::from(state)]
}
