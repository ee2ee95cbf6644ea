//! ValidatingAdmissionPolicy.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::qualified_name;

use super::{policy, rules};
use crate::conditions::validate_conditions;
use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::podspec::seen::Seen;
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
    refused: Some(rules::CEL_MISSING),
    set_defaults: policy::set_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: validate_status_update,
        reset: &["spec", "metadata"],
    }),
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
const MAX_MESSAGE_BYTES: usize = 1024;

fn validate(object: &Tree, errors: &mut Errors) {
    policy::validate(object, errors);
    let (validations, annotations) = (object.list("spec.validations"), object.list("spec.auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(&Path::root("spec.validations"), detail);
        errors.required(&Path::root("spec.auditAnnotations"), detail);
    }
    let path = Path::root("spec.validations");
    for (index, validation) in validations.iter().enumerate() {
        validate_validation(validation, &path.index(index), errors);
    }
    validate_annotations(object, annotations, errors);
}

fn validate_validation(validation: &Tree, path: &Path<'_>, errors: &mut Errors) {
    rules::validate_expression(validation, "expression", path, errors);
    let message = validation.str("message");
    if message.trim() != message || (message.trim().is_empty() && !message.is_empty()) {
        errors.invalid(&path.field("message"), message, "message must not have leading or trailing whitespace");
    } else if message.contains(['\n', '\r']) {
        errors.invalid(&path.field("message"), message, "must not contain line breaks");
    } else if message.len() > MAX_MESSAGE_BYTES {
        errors.too_long(&path.field("message"), MAX_MESSAGE_BYTES);
    }
    rules::validate_one_of(validation, "reason", REASONS, path, errors);
}

fn validate_annotations(object: &Tree, annotations: &[Tree], errors: &mut Errors) {
    let path = Path::root("spec.auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.invalid(&path, object.at("spec.auditAnnotations"), &detail);
    }
    let mut seen = Seen::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let (path, key) = (path.index(index), annotation.str("key"));
        match key {
            "" => errors.required(&path.field("key"), ""),
            key => {
                let full = format!("{}/{key}", object.str("metadata.name"));
                errors.invalid_all(&path.field("key"), &full, qualified_name(&full));
            }
        }
        rules::validate_expression(annotation, "valueExpression", &path, errors);
        if !seen.insert(key) {
            errors.duplicate(&path.field("key"), key);
        }
    }
}

fn validate_status_update(object: &Tree, _: &Tree, errors: &mut Errors) {
    validate_conditions(object.list("status.conditions"), &Path::root("status.conditions"), errors);
}
