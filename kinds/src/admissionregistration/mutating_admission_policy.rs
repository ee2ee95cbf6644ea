//! MutatingAdmissionPolicy.

use api::Tree;
use api::field::{Errors, Path};

use super::expressions::ExpressionKind;
use super::policy::PolicyExpressions;
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
    set_defaults: policy::set_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate: |object, errors| validate(object, None, errors),
    validate_update: |object, old, errors| validate(object, Some(old), errors),
    warnings: rules::warn_of_reserved_name,
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

/// A deleted object cannot be changed.
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];

fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let spec = object.at("spec");
    let mut expressions = policy::validate(object, old, errors);
    validate_operations(spec.at("matchConstraints"), "spec.matchConstraints", errors);
    policy::validate_conditions(object, old, &expressions, errors);
    expressions.compiler = expressions.compiler.with_variables();
    expressions.add_variables(spec.list("variables"), errors);
    let (mutations, path) = (spec.list("mutations"), Path::root("spec.mutations"));
    if mutations.is_empty() {
        errors.required(&path, "mutations must contain at least one item");
    }
    for (index, mutation) in mutations.iter().enumerate() {
        validate_mutation(mutation, &expressions, &path.index(index), errors);
    }
    match spec.str("reinvocationPolicy") {
        "" => errors.required(&Path::root("spec.reinvocationPolicy"), ""),
        _ => rules::validate_one_of(spec, "reinvocationPolicy", REINVOCATION_POLICIES, &Path::root("spec"), errors),
    }
}

/// The path of the errors has no index, as upstream has it.
pub(super) fn validate_operations(resources: &Tree, path: &str, errors: &mut Errors) {
    let path = format!("{path}.resourceRules.operations");
    let path = Path::root(&path);
    let operations = resources.list("resourceRules").iter().flat_map(|rule| rule.list("operations"));
    for operation in operations.filter_map(Tree::as_str).filter(|operation| !OPERATIONS.contains(operation)) {
        errors.not_supported(&path, operation, OPERATIONS);
    }
}

/// The patch type determines the field of the expression.
fn validate_mutation(mutation: &Tree, expressions: &PolicyExpressions, path: &Path<'_>, errors: &mut Errors) {
    let (kind, field, other) = match mutation.str("patchType") {
        "" => return errors.required(&path.field("patchType"), ""),
        "JSONPatch" => (ExpressionKind::JsonPatch, "jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => (ExpressionKind::ApplyConfiguration, "applyConfiguration", "jsonPatch"),
        ty => return errors.not_supported(&path.field("patchType"), ty, &["ApplyConfiguration", "JSONPatch"]),
    };
    let ty = mutation.str("patchType");
    match mutation.get(field) {
        None => errors.required(&path.field(field), &format!("must be specified when patchType is {ty}")),
        Some(patch) => {
            let path = path.field(field);
            match patch.str("expression").trim() {
                "" => errors.required(&path.field("expression"), ""),
                text => expressions.check(kind, (text, text), &path.field("expression"), errors),
            }
        }
    }
    if mutation.has(other) {
        let detail = format!("must not be specified when patchType is {ty}");
        errors.invalid(&path.field(other), format!("{{{other}}}"), &detail);
    }
}
