//! Shared by validating and mutating policies and their bindings.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::{c_identifier, dns1035_label, dns1123_subdomain};

use super::expressions::{ExpressionKind, PolicyCompiler};
use super::rules;
use super::stored::StoredExpressions;
use crate::cells;
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
}

/// Validates the fields that both kinds of policies share. The result compiles the other expressions.
pub(super) fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) -> PolicyExpressions {
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
    let stored = StoredExpressions::of(old.map(|old| old.at("spec")));
    PolicyExpressions { compiler: stored.compiler(spec.has("paramKind")), stored }
}

/// Match conditions that have not changed are not validated again.
pub(super) fn validate_conditions(
    object: &Tree,
    old: Option<&Tree>,
    expressions: &PolicyExpressions,
    errors: &mut Errors,
) {
    let same = |field: &str| old.is_some_and(|old| old.at(field) == object.at(field));
    if !(same("spec.paramKind") && same("spec.matchConditions")) {
        rules::validate_match_conditions(object.at("spec"), &expressions.stored, &SPEC, errors);
    }
}

/// The compiler of a policy, and which expressions it had before.
pub(super) struct PolicyExpressions {
    pub compiler: PolicyCompiler,
    stored: StoredExpressions,
}

impl PolicyExpressions {
    /// Compiles an expression and adds its error. `text` is compiled, `shown` is the value of the error.
    pub(super) fn check(
        &self,
        kind: ExpressionKind,
        (text, shown): (&str, &str),
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let compiler = self.compiler.for_expressions(self.stored.environment(shown));
        rules::report(compiler.compile(kind, text).err(), shown, path, errors);
    }

    pub(super) fn add_variables(&mut self, variables: &[Tree], errors: &mut Errors) {
        let path = SPEC.field("variables");
        if !variables.is_empty() {
            self.compiler = self.compiler.clone().with_variables();
        }
        for (index, variable) in variables.iter().enumerate() {
            self.add_variable(variable, &path.index(index), errors);
        }
    }

    fn add_variable(&mut self, variable: &Tree, path: &Path<'_>, errors: &mut Errors) {
        let (name, text) = (variable.str("name"), variable.str("expression"));
        if name.trim().is_empty() {
            errors.required(&path.field("name"), "name is not specified");
        } else if !c_identifier(name).is_empty() || cel::is_reserved(name) {
            errors.invalid(&path.field("name"), name, "must be a valid CEL identifier");
        }
        if text.trim().is_empty() {
            return errors.required(&path.field("expression"), "expression is not specified");
        }
        let mut compiler = self.compiler.for_expressions(self.stored.environment(text));
        rules::report(compiler.add_variable(name, text).err(), text, &path.field("expression"), errors);
        self.compiler = compiler;
    }
}

fn validate_param_kind(kind: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (api_version, name) = (kind.str("apiVersion"), kind.str("kind"));
    if api_version.is_empty() {
        errors.required(&path.field("apiVersion"), "");
    } else {
        validate_group_version(api_version, &path.field("apiVersion"), errors);
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

fn validate_group_version(api_version: &str, path: &Path<'_>, errors: &mut Errors) {
    if api_version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        return errors.invalid(path, api_version, &detail);
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let join = |messages: Vec<String>| Some(messages.join(",")).filter(|joined| !joined.is_empty());
    if let Some(detail) = join(dns1123_subdomain(group)).filter(|_| !group.is_empty()) {
        errors.invalid(path, group, &detail);
    }
    if version.is_empty() {
        errors.invalid(path, api_version, "version must be specified");
    } else if let Some(detail) = join(dns1035_label(version)) {
        errors.invalid(path, version, &detail);
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
