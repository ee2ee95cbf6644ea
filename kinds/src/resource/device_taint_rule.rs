//! DeviceTaintRule.

use api::Tree;
use api::field::{Errors, Path};

use super::rules::{expect_stamp, stamp_taint, validate_label, validate_pool_name, validate_taint};
use crate::checks::validate_driver_name;
use crate::conditions::validate_conditions;
use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, bump_generation, column};
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    upstream_version: Some("v1beta2"),
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Key", "string", "", 0),
        column("Value", "string", "", 0),
        column("Effect", "string", "", 0),
        column("TimeAdded", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults: |object| expect_stamp(object.child("spec.taint")),
    prepare_create,
    prepare_update,
    validate: |object, errors| validate(object, None, errors),
    validate_update: |object, old, errors| validate(object, Some(old), errors),
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: validate_status_update,
        reset: &["spec", "metadata"],
    }),
    cells,
    ..Kind::cluster("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", "devicetaintrule")
};

const MAX_CONDITIONS: usize = 8;

fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    prepare::no_status(object, context);
    prepare::first_generation(object);
    stamp_taint(object.child("spec.taint"), context);
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
    stamp_taint(object.child("spec.taint"), context);
    bump_generation(object, old, &["spec"]);
}

fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let (selector, path) = (object.at("spec.deviceSelector"), Path::root("spec.deviceSelector"));
    if selector.has("driver") {
        validate_driver_name(selector.str("driver"), &path.field("driver"), errors);
    }
    if selector.has("pool") {
        validate_pool_name(selector.str("pool"), &path.field("pool"), errors);
    }
    if selector.has("device") {
        validate_label(selector.str("device"), &path.field("device"), errors);
    }
    let old_effect = old.map(|old| old.str("spec.taint.effect"));
    validate_taint(object.at("spec.taint"), old_effect, &Path::root("spec.taint"), errors);
}

fn validate_status_update(object: &Tree, _: &Tree, errors: &mut Errors) {
    let (conditions, path) = (object.list("status.conditions"), Path::root("status.conditions"));
    validate_conditions(conditions, &path, errors);
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(&path, conditions.len(), MAX_CONDITIONS);
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![
        cells::name(object),
        Tree::from(object.str("spec.taint.key")),
        Tree::from(object.str("spec.taint.value")),
        Tree::from(object.str("spec.taint.effect")),
        cells::since(object.str("spec.taint.timeAdded"), now),
        cells::age(object, now),
    ]
}
