//! ValidatingAdmissionPolicy.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::qualified_name;

use super::expressions::ExpressionKind;
use super::policy::PolicyExpressions;
use super::{policy, rules};
use crate::conditions::validate_conditions;
use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::podspec::small_set::SmallSet;
use crate::prepare;

pub(crate) static KIND: Kind = Kind {
    categories: &["api-extensions"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Validations", "integer", "", 0),
        column("ParamKind", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults: policy::set_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate: |object, errors| validate(object, None, errors),
    validate_update: |object, old, errors| validate(object, Some(old), errors),
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: validate_status_update,
        reset: &["spec", "metadata"],
    }),
    warnings: rules::warn_of_reserved_name,
    unconditional_update: false,
    cells: |object, now| policy::cells(object, "spec.validations", now),
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
    )
};

const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION_BYTES: usize = 5 * 1024;

fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let mut expressions = policy::validate(object, old, errors);
    policy::validate_conditions(object, old, &expressions, errors);
    expressions.add_variables(object.list("spec.variables"), errors);
    let (validations, annotations) = (object.list("spec.validations"), object.list("spec.auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(&Path::root("spec.validations"), detail);
        errors.required(&Path::root("spec.auditAnnotations"), detail);
    }
    let path = Path::root("spec.validations");
    for (index, validation) in validations.iter().enumerate() {
        validate_validation(validation, &expressions, &path.index(index), errors);
    }
    validate_annotations(object, annotations, &expressions, errors);
}

fn validate_validation(validation: &Tree, expressions: &PolicyExpressions, path: &Path<'_>, errors: &mut Errors) {
    let text = validation.str("expression");
    match text.trim() {
        "" => errors.required(&path.field("expression"), "expression is not specified"),
        _ => expressions.check(ExpressionKind::Validation, (text, text), &path.field("expression"), errors),
    }
    let (text, path_of_text) = (validation.str("messageExpression"), path.field("messageExpression"));
    if !text.trim().is_empty() {
        expressions.check(ExpressionKind::Message, (text, text), &path_of_text, errors);
    } else if !text.is_empty() {
        errors.invalid(&path_of_text, text, "must be non-empty if specified");
    }
    let message = validation.str("message");
    if message.trim().is_empty() && !message.is_empty() {
        errors.invalid(&path.field("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&path.field("message"), message, "must not contain line breaks");
    }
    rules::validate_one_of(validation, "reason", REASONS, path, errors);
}

fn validate_annotations(object: &Tree, annotations: &[Tree], expressions: &PolicyExpressions, errors: &mut Errors) {
    let path = Path::root("spec.auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        return errors.invalid(&path, object.at("spec.auditAnnotations"), &detail);
    }
    let mut seen = SmallSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let (path, key) = (path.index(index), annotation.str("key"));
        match object.str("metadata.name") {
            "" => errors.invalid(&path.field("key"), key, "requires metadata.name be non-empty"),
            name => {
                let full = format!("{name}/{key}");
                errors.invalid_all(&path.field("key"), &full, qualified_name(&full));
            }
        }
        validate_value(annotation.str("valueExpression"), expressions, &path.field("valueExpression"), errors);
        if !seen.insert(key) {
            errors.duplicate(&path.field("key"), key);
        }
    }
}

fn validate_value(text: &str, expressions: &PolicyExpressions, path: &Path<'_>, errors: &mut Errors) {
    match text.trim() {
        "" => errors.required(path, "valueExpression is not specified"),
        long if long.len() > MAX_VALUE_EXPRESSION_BYTES => {
            errors.required(path, &format!("must not exceed {MAX_VALUE_EXPRESSION_BYTES} bytes in length"));
        }
        trimmed => expressions.check(ExpressionKind::AuditAnnotation, (trimmed, text), path, errors),
    }
}

fn validate_status_update(object: &Tree, _: &Tree, errors: &mut Errors) {
    let path = Path::root("status.typeChecking.expressionWarnings");
    for (index, warning) in object.list("status.typeChecking.expressionWarnings").iter().enumerate() {
        let path = path.index(index);
        for field in ["warning", "fieldRef"] {
            if warning.str(field).trim().is_empty() {
                errors.required(&path.field(field), "");
            }
        }
    }
    validate_conditions(object.list("status.conditions"), &Path::root("status.conditions"), errors);
}
