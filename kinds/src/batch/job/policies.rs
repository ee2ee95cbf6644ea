//! Validation of pod failure and success policies.

use std::collections::BTreeSet;

use api::Tree;
use api::field::{Errors, Path, Value};
use api::validation;

use super::indexes;
use crate::checks;

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;
const MAX_INDEXES_BYTES: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Go's %q of a list: `["a" "b"]`.
fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn required_one_of(value: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if value.is_empty() {
        errors.required(path, &valid_values(supported));
    } else if !supported.contains(&value) {
        errors.not_supported(path, value, supported);
    }
}

/// Upstream omits the value in some errors.
fn without_value(path: &Path<'_>, text: &str, errors: &mut Errors) {
    errors.invalid(path, Value::raw(text), "");
}

pub(super) fn validate_failure_policy(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let rules = spec.list("podFailurePolicy.rules");
    let rules_path = path.field("rules");
    if rules.len() > MAX_RULES {
        errors.too_many(&rules_path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(spec, rule, &rules_path.index(index), errors);
    }
}

fn validate_rule(spec: &Tree, rule: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let action = rule.str("action");
    if action == "FailIndex" {
        if !spec.has("backoffLimitPerIndex") {
            errors.invalid(&path.field("action"), action, "requires the backoffLimitPerIndex to be set");
        }
    } else {
        required_one_of(action, &ACTIONS, &path.field("action"), errors);
    }
    let patterns = rule.list("onPodConditions");
    if rule.has("onExitCodes") {
        validate_exit_codes(spec, rule.at("onExitCodes"), &path.field("onExitCodes"), errors);
    }
    validate_patterns(patterns, &path.field("onPodConditions"), errors);
    match (rule.has("onExitCodes"), patterns.is_empty()) {
        (true, false) => {
            without_value(path, "specifying both OnExitCodes and OnPodConditions is not supported", errors);
        }
        (false, true) => {
            without_value(path, "specifying one of OnExitCodes and OnPodConditions is required", errors);
        }
        _ => {}
    }
}

fn validate_patterns(patterns: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    if patterns.len() > MAX_PATTERNS {
        errors.too_many(path, patterns.len(), MAX_PATTERNS);
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let kind = pattern.str("type");
        errors.invalid_all(&path.index(index).field("type"), kind, validation::qualified_name(kind));
        required_one_of(pattern.str("status"), &STATUSES, &path.index(index).field("status"), errors);
    }
}

fn validate_exit_codes(spec: &Tree, codes: &Tree, path: &Path<'_>, errors: &mut Errors) {
    required_one_of(codes.str("operator"), &OPERATORS, &path.field("operator"), errors);
    let has = |name: &str| {
        let containers =
            ["containers", "initContainers"].into_iter().flat_map(|key| spec.at("template.spec").list(key));
        containers.into_iter().any(|container| container.str("name") == name)
    };
    if let Some(name) = codes.at("containerName").as_str().filter(|name| !has(name)) {
        let text = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.field("containerName"), name, text);
    }
    let values = codes.list("values");
    let values_path = path.field("values");
    if values.is_empty() {
        errors.invalid(&values_path, codes.at("values"), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        errors.too_many(&values_path, values.len(), MAX_EXIT_CODES);
    }
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        if codes.str("operator") == "In" && value.as_int() == Some(0) {
            errors.invalid(&values_path.index(index), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(value.as_int()) {
            errors.duplicate(&values_path.index(index), value);
        }
    }
    if values.windows(2).any(|pair| pair[0].as_int() > pair[1].as_int()) {
        errors.invalid(&values_path, codes.at("values"), "must be ordered");
    }
}

pub(super) fn validate_success_policy(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let rules = spec.list("successPolicy.rules");
    let rules_path = path.field("rules");
    if rules.is_empty() {
        let text = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&rules_path, text);
    }
    if rules.len() > MAX_RULES {
        errors.too_many(&rules_path, rules.len(), MAX_RULES);
    }
    // A missing number of completions is reported elsewhere.
    let completions = spec.int("completions").unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        validate_success_rule(rule, completions, &rules_path.index(index), errors);
    }
}

fn validate_success_rule(rule: &Tree, completions: i64, path: &Path<'_>, errors: &mut Errors) {
    let indexes = rule.at("succeededIndexes").as_str();
    let mut total = 0;
    if !rule.has("succeededCount") && indexes.is_none() {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    if let Some(indexes) = indexes {
        if indexes.len() > MAX_INDEXES_BYTES {
            errors.too_long(&path.field("succeededIndexes"), MAX_INDEXES_BYTES);
        }
        match indexes::count(indexes, completions) {
            Ok(count) => total = count,
            Err(error) => {
                let text = format!("error parsing succeededIndexes: {error}");
                errors.invalid(&path.field("succeededIndexes"), indexes, &text);
            }
        }
    }
    let Some(count) = rule.int("succeededCount") else { return };
    checks::non_negative(rule, "succeededCount", path, errors);
    let limits = [
        (Some(completions), "the number of specified completions"),
        (indexes.map(|_| total), "the number of indexes in the specified succeededIndexes field"),
    ];
    for (limit, what) in limits.into_iter().filter_map(|(limit, what)| limit.map(|limit| (limit, what))) {
        if count > limit {
            let text = format!("must be less than or equal to {limit} ({what})");
            errors.invalid(&path.field("succeededCount"), count, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check(spec: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate_failure_policy(&spec, &Path::root("f"), &mut errors);
        if spec.has("successPolicy") {
            validate_success_policy(&spec, &Path::root("s"), &mut errors);
        }
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn failure_rules_have_one_requirement() {
        let rule = |rule: Tree| tree! { "podFailurePolicy" => tree! { "rules" => list![rule] } };
        check(
            rule(tree! { "action" => "FailJob" }),
            &["f.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
        );
        let codes = tree! { "operator" => "In", "values" => list![3, 0] };
        check(
            rule(tree! { "action" => "FailIndex", "onExitCodes" => codes }),
            &[
                "f.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
                "f.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                "f.rules[0].onExitCodes.values: Invalid value: [3,0]: must be ordered",
            ],
        );
    }

    #[test]
    fn success_rules_match_completions() {
        let rule = tree! { "succeededIndexes" => "0-1", "succeededCount" => 3 };
        check(
            tree! { "completions" => 4, "successPolicy" => tree! { "rules" => list![rule] } },
            &[
                "s.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
            ],
        );
    }
}
