//! Shared by policies and webhooks: rules, match conditions and matched resources.

use api::field::{Errors, Path};
use api::validation::{path_segment_name, qualified_name};
use api::{Tree, tree};

use super::expressions::{ExpressionError, ExpressionKind};
use super::stored::StoredExpressions;
use crate::kind::{Context, bump_generation};
use crate::podspec::small_set::SmallSet;
use crate::podspec::validate_label_selector;
use crate::prepare;

pub(crate) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
const MAX_MATCH_CONDITIONS: usize = 64;

pub(super) fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    prepare::no_status(object, context);
    prepare::first_generation(object);
}

pub(super) fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_status(object, old, context);
    bump_generation(object, old, &["spec", "webhooks"]);
}

/// The suffix that upstream reserves for configurations from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

pub(super) fn warn_of_reserved_name(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let is_reserved = object.str("metadata.name").ends_with(STATIC_SUFFIX);
    let warning = format!(
        "metadata.name: names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
    );
    is_reserved.then_some(warning).into_iter().collect()
}

/// A rule without a scope applies to both scopes.
pub(crate) fn set_rule_defaults(rules: &mut [Tree]) {
    for rule in rules {
        rule.set_default("scope", "*");
    }
}

/// The selectors of a webhook or policy match everything by default.
pub(crate) fn set_match_defaults(resources: &mut Tree) {
    resources.set_default("matchPolicy", "Equivalent");
    resources.set_default("namespaceSelector", tree! {});
    resources.set_default("objectSelector", tree! {});
    set_rule_defaults(resources.list_mut("resourceRules"));
    set_rule_defaults(resources.list_mut("excludeResourceRules"));
}

/// A field that is set, even to the empty string, must have one of these values.
pub(crate) fn validate_one_of(object: &Tree, key: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = object.at(key).as_str()
        && !supported.contains(&value)
    {
        errors.not_supported(&path.field(key), value, supported);
    }
}

pub(crate) fn validate_match_resources(resources: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_selectors(resources, path, errors);
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in resources.list(list).iter().enumerate() {
            validate_resource_names(rule, &path.field(list).index(index).field("resourceNames"), errors);
            validate_rule(rule, &path.field(list).index(index), errors);
        }
    }
    validate_match_policy(resources, path, errors);
}

pub(crate) fn validate_selectors(object: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for selector in ["namespaceSelector", "objectSelector"] {
        validate_label_selector(object.at(selector), &path.field(selector), errors);
    }
}

pub(crate) fn validate_match_policy(object: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_one_of(object, "matchPolicy", MATCH_POLICIES, path, errors);
}

fn validate_resource_names(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = SmallSet::new();
    for (index, name) in rule.list("resourceNames").iter().filter_map(Tree::as_str).enumerate() {
        errors.invalid_all(&path.index(index), name, path_segment_name(name));
        if !seen.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
    }
}

pub(crate) fn validate_rule(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let operations = rule.list("operations");
    validate_wildcards(rule, "operations", "operations", path, errors);
    for (index, operation) in operations.iter().filter_map(Tree::as_str).enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.not_supported(&path.field("operations").index(index), operation, OPERATIONS);
        }
    }
    validate_groups_and_versions(rule, path, errors);
    validate_resources(rule, &path.field("resources"), errors);
    validate_one_of(rule, "scope", SCOPES, path, errors);
}

/// A rule of groups, versions and resources only, without subresources.
pub(crate) fn validate_plain_rule(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_groups_and_versions(rule, path, errors);
    validate_resources(rule, &path.field("resources"), errors);
    for (index, resource) in rule.list("resources").iter().filter_map(Tree::as_str).enumerate() {
        if resource.contains('/') {
            errors.invalid(&path.field("resources").index(index), resource, "must not specify subresources");
        }
    }
}

fn validate_groups_and_versions(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_wildcards(rule, "apiGroups", "API groups", path, errors);
    validate_wildcards(rule, "apiVersions", "API versions", path, errors);
    for (index, version) in rule.list("apiVersions").iter().enumerate() {
        if version.as_str() == Some("") {
            errors.required(&path.field("apiVersions").index(index), "");
        }
    }
}

/// At least one value, and a wildcard only alone.
fn validate_wildcards(rule: &Tree, field: &str, words: &str, path: &Path<'_>, errors: &mut Errors) {
    let values = rule.list(field);
    if values.is_empty() {
        errors.required(&path.field(field), "");
    }
    if values.len() > 1 && values.iter().any(|value| value.as_str() == Some("*")) {
        let detail = format!("if '*' is present, must not specify other {words}");
        errors.invalid(&path.field(field), rule.at(field), &detail);
    }
}

fn validate_resources(rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let resources: Vec<&str> = rule.list("resources").iter().map(|value| value.as_str().unwrap_or("")).collect();
    if resources.is_empty() {
        errors.required(path, "");
    }
    let mut seen = SmallSet::new();
    for (index, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.required(&path.index(index), "");
        }
        let Some((name, sub)) = resource.split_once('/') else { continue };
        for wildcard in [format!("{name}/*"), format!("*/{sub}")] {
            if is_seen(&seen, &wildcard) {
                let detail = format!("if '{wildcard}' is present, must not specify {resource}");
                errors.invalid(&path.index(index), *resource, &detail);
            }
        }
        seen.insert(*resource);
    }
    let plain = |resource: &&str| !resource.contains('/') && *resource != "*";
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, rule.at("resources"), detail);
    }
    if resources.contains(&"*") && resources.iter().any(plain) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, rule.at("resources"), detail);
    }
}

fn is_seen(seen: &SmallSet<&str>, resource: &str) -> bool {
    seen.contains(&resource)
}

/// The conditions of a webhook or a policy. Stored conditions can use functions that are new in this version.
pub(crate) fn validate_match_conditions(
    object: &Tree,
    stored: &StoredExpressions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (conditions, path) = (object.list("matchConditions"), path.field("matchConditions"));
    if conditions.len() > MAX_MATCH_CONDITIONS {
        return errors.too_many(&path, conditions.len(), MAX_MATCH_CONDITIONS);
    }
    let compiler = stored.compiler(object.has("paramKind"));
    let mut seen = SmallSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let (path, name) = (path.index(index), condition.str("name"));
        let text = condition.str("expression").trim();
        match text {
            "" => errors.required(&path.field("expression"), ""),
            text => {
                let compiler = compiler.for_expressions(stored.environment(text));
                let result = compiler.compile(ExpressionKind::MatchCondition, text);
                report(result.err(), text, &path.field("expression"), errors);
            }
        }
        match name {
            "" => errors.required(&path.field("name"), ""),
            name => errors.invalid_all(&path.field("name"), name, qualified_name(name)),
        }
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}

/// Adds the error of an expression. A constant that cannot be used is an internal error upstream.
pub(crate) fn report(error: Option<ExpressionError>, text: &str, path: &Path<'_>, errors: &mut Errors) {
    match error {
        None => {}
        Some(error @ ExpressionError::Program(_)) => errors.internal(path, &error.to_string()),
        Some(error) => errors.invalid(path, text, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::list;

    #[test]
    fn wildcards_stand_alone() {
        let check = |resources: Tree, want: &[&str]| {
            let rule = tree! { "operations" => list!["*"], "apiGroups" => list![""], "apiVersions" => list!["v1"], "resources" => resources };
            let mut errors = Errors::new();
            validate_rule(&rule, &Path::root("r"), &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), want);
        };
        check(list!["pods", "pods/status"], &[]);
        check(list!["*", "pods/status"], &[]);
        check(list!["*", "pods"], &["r.resources"]);
        check(list!["*/*", "pods"], &["r.resources"]);
        check(list!["pods/*", "pods/status"], &["r.resources[1]"]);
    }
}
