//! Shared by validating and mutating policies and their bindings.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::{c_identifier, dns1035_label, dns1123_subdomain};

use super::rules;
use crate::cells;
use crate::podspec::seen::Seen;
use crate::podspec::validate_label_selector;

const SPEC: Path<'static> = Path::root("spec");

pub(super) fn set_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    spec.set_default("failurePolicy", "Fail");
    if let Some(resources) = spec.get_mut("matchConstraints") {
        rules::set_match_defaults(resources);
    }
}

pub(crate) fn set_binding_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    if let Some(resources) = spec.get_mut("matchResources") {
        rules::set_match_defaults(resources);
    }
    if let Some(reference) = spec.get_mut("paramRef") {
        reference.set_default("parameterNotFoundAction", "Deny");
    }
}

pub(super) fn validate(object: &Tree, errors: &mut Errors) {
    let spec = object.at("spec");
    rules::validate_one_of(spec, "failurePolicy", rules::FAILURE_POLICIES, &SPEC, errors);
    if spec.has("paramKind") {
        validate_param_kind(spec.at("paramKind"), &SPEC.field("paramKind"), errors);
    }
    let path = SPEC.field("matchConstraints");
    match spec.get("matchConstraints") {
        None => errors.required(&path, ""),
        Some(resources) => {
            rules::validate_match_resources(resources, &path, errors);
            if resources.list("resourceRules").is_empty() {
                errors.required(&path.field("resourceRules"), "");
            }
        }
    }
    rules::validate_match_conditions(spec, &SPEC, errors);
    validate_variables(spec.list("variables"), &SPEC.field("variables"), errors);
}

fn validate_param_kind(kind: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (api_version, name) = (kind.str("apiVersion"), kind.str("kind"));
    if api_version.is_empty() {
        errors.required(&path.field("apiVersion"), "");
    } else {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if !group.is_empty() {
            errors.invalid_all(&path.field("apiVersion"), group, dns1123_subdomain(group));
        }
        errors.invalid_all(&path.field("apiVersion"), version, dns1035_label(version));
    }
    if name.is_empty() {
        errors.required(&path.field("kind"), "");
    } else {
        let messages = dns1035_label(&name.to_lowercase());
        if !messages.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", messages.join(","));
            errors.invalid(&path.field("kind"), name, &detail);
        }
    }
}

fn validate_variables(variables: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::new();
    for (index, variable) in variables.iter().enumerate() {
        let (path, name) = (path.index(index), variable.str("name"));
        if name.is_empty() {
            errors.required(&path.field("name"), "name is not specified");
        } else if !c_identifier(name).is_empty() {
            errors.invalid(&path.field("name"), name, "must be a valid CEL identifier");
        }
        rules::validate_expression(variable, "expression", &path, errors);
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}

pub(crate) fn validate_binding(object: &Tree, errors: &mut Errors) {
    let spec = object.at("spec");
    match spec.str("policyName") {
        "" => errors.required(&SPEC.field("policyName"), ""),
        name => errors.invalid_all(&SPEC.field("policyName"), name, dns1123_subdomain(name)),
    }
    if spec.has("paramRef") {
        validate_param_ref(spec.at("paramRef"), &SPEC.field("paramRef"), errors);
    }
    if spec.has("matchResources") {
        rules::validate_match_resources(spec.at("matchResources"), &SPEC.field("matchResources"), errors);
    }
}

fn validate_param_ref(reference: &Tree, path: &Path<'_>, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, has_selector) = (reference.str("name"), reference.has("selector"));
    if !name.is_empty() {
        errors.invalid_all(&path.field("name"), name, api::validation::path_segment_name(name));
        if has_selector {
            errors.forbidden(&path.field("name"), EXCLUSIVE);
        }
    }
    if has_selector {
        validate_label_selector(reference.at("selector"), &path.field("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.field("selector"), EXCLUSIVE);
        }
    }
    if name.is_empty() && !has_selector {
        errors.required(path, "one of name or selector must be specified");
    }
    match reference.str("parameterNotFoundAction") {
        "" => errors.required(&path.field("parameterNotFoundAction"), ""),
        _ => rules::validate_one_of(reference, "parameterNotFoundAction", &["Deny", "Allow"], path, errors),
    }
}

/// Name, number of rules, parameter kind, age.
pub(super) fn cells(object: &Tree, list: &str, now: i64) -> Vec<Tree> {
    let kind = object.at("spec.paramKind");
    let kind = match kind.is_null() {
        true => "<unset>".to_string(),
        false => format!("{}/{}", kind.str("apiVersion"), kind.str("kind")),
    };
    let count = object.list(list).len() as i64;
    vec![cells::name(object), Tree::Int(count), Tree::from(kind), cells::age(object, now)]
}

pub(crate) fn binding_cells(object: &Tree, now: i64) -> Vec<Tree> {
    let reference = object.at("spec.paramRef");
    let reference = match (reference.str("namespace"), reference.str("name")) {
        _ if reference.is_null() => "<unset>".to_string(),
        ("", name) => name.to_string(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![cells::name(object), Tree::from(object.str("spec.policyName")), Tree::from(reference), cells::age(object, now)]
}
