//! MutatingAdmissionPolicy.

use api::Tree;
use api::field::{Errors, Path};

use super::{policy, rules};
use crate::kind::{Kind, column};

pub(crate) static KIND: Kind = Kind {
    categories: &["api-extensions"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Mutations", "integer", "", 0),
        column("ParamKind", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    refused: Some(rules::CEL_MISSING),
    set_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    unconditional_update: false,
    cells: |object, now| policy::cells(object, "spec.mutations", now),
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicy",
    )
};

fn set_defaults(object: &mut Tree) {
    policy::set_defaults(object);
    object.child("spec").set_default("reinvocationPolicy", "Never");
}

fn validate(object: &Tree, errors: &mut Errors) {
    policy::validate(object, errors);
    let policies = &["IfNeeded", "Never"];
    rules::validate_one_of(object.at("spec"), "reinvocationPolicy", policies, &Path::root("spec"), errors);
    let mutations = object.list("spec.mutations");
    let path = Path::root("spec.mutations");
    if mutations.is_empty() {
        errors.required(&path, "mutations must contain at least one item");
    }
    for (index, mutation) in mutations.iter().enumerate() {
        validate_mutation(mutation, &path.index(index), errors);
    }
}

/// The patch type determines the field of the expression.
fn validate_mutation(mutation: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let ty = mutation.str("patchType");
    let types = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
    match ty {
        "" => errors.required(&path.field("patchType"), ""),
        _ => rules::validate_one_of(mutation, "patchType", &["ApplyConfiguration", "JSONPatch"], path, errors),
    }
    for (owner, field) in types {
        match mutation.get(field) {
            Some(patch) if ty == owner => rules::validate_expression(patch, "expression", &path.field(field), errors),
            Some(_) => errors.forbidden(&path.field(field), &format!("may only be set when patchType is {owner}")),
            None if ty == owner => {
                errors.required(&path.field(field), &format!("must be set when patchType is {owner}"));
            }
            None => {}
        }
    }
}
