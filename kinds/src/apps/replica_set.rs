//! ReplicaSet.

use api::Tree;
use api::field::Errors;

use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::workload::{self, SPEC};
use crate::{cells, checks, podspec, scale, strategy};

pub(crate) static KIND: Kind = Kind {
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "scale",
            gvk: Some(("autoscaling", "v1", "Scale")),
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    set_defaults,
    prepare_create: workload::prepare_create,
    prepare_update: workload::prepare_update,
    validate,
    validate_update,
    warnings: workload::warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    scale: Some(scale::REPLICAS),
    columns: &[
        column("Name", "string", "name", 0),
        column("Desired", "integer", "", 0),
        column("Current", "integer", "", 0),
        column("Ready", "integer", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    cells: row,
    ..Kind::namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
};

fn set_defaults(replica_set: &mut Tree) {
    let spec = replica_set.child("spec");
    spec.set_default("replicas", 1);
    podspec::set_template_defaults(spec.child("template"));
}

fn validate(replica_set: &Tree, errors: &mut Errors) {
    let spec = replica_set.at("spec");
    checks::all_non_negative(spec, &["replicas", "minReadySeconds"], &SPEC, errors);
    validate_selector_and_template(&KIND, spec, errors);
}

/// Also for Deployments, whose ReplicaSets have the same template.
pub(super) fn validate_selector_and_template(kind: &Kind, spec: &Tree, errors: &mut Errors) {
    let selector = workload::validate_selector(kind, spec, "empty selector is invalid for deployment", errors);
    let Some(selector) = selector else {
        let value = workload::selector_value(kind, spec.at("selector"));
        return errors.invalid(&SPEC.field("selector"), value, "invalid label selector");
    };
    let (template, path) = (spec.at("template"), SPEC.field("template"));
    workload::validate_match(&selector, template, &path, errors);
    podspec::validate_template(template, &path, errors);
    if spec.int("replicas").unwrap_or(0) > 1 {
        workload::validate_read_only_disks(template, &path, errors);
    }
    workload::validate_running_template(template, "ReplicaSet", &path, errors);
}

fn validate_update(replica_set: &Tree, old: &Tree, errors: &mut Errors) {
    validate(replica_set, errors);
    workload::validate_selector_update(&KIND, replica_set, old, errors);
}

fn validate_status(replica_set: &Tree, _: &Tree, errors: &mut Errors) {
    workload::validate_replica_status(replica_set.at("status"), errors);
}

fn row(replica_set: &Tree, now: i64) -> Vec<Tree> {
    workload::row_with_selector(replica_set, cells::label_selector(replica_set.at("spec.selector")), now)
}
