//! Validation of an autoscaler except its metrics.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::metrics;
use crate::checks;

const SPEC: Path<'static> = Path::root("spec");
const MAX_PERIOD_SECONDS: i64 = 1800;
const MAX_WINDOW_SECONDS: i64 = 3600;

pub(in crate::autoscaling) fn validate(autoscaler: &Tree, errors: &mut Errors) {
    validate_spec(autoscaler.at("spec"), false, errors);
}

pub(in crate::autoscaling) fn validate_update(autoscaler: &Tree, old: &Tree, errors: &mut Errors) {
    let stored_bad = api_version_message(old.at("spec.scaleTargetRef")).is_some();
    validate_spec(autoscaler.at("spec"), stored_bad, errors);
}

fn validate_spec(spec: &Tree, any_api_version: bool, errors: &mut Errors) {
    checks::non_negative(spec, "minReplicas", &SPEC, errors);
    let max = spec.int("maxReplicas").unwrap_or(0);
    if max < spec.int("minReplicas").unwrap_or(i64::MIN) {
        errors.invalid(&SPEC.field("maxReplicas"), max, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef");
    validate_object_reference(target, &SPEC.field("scaleTargetRef"), errors);
    if let Some(message) = api_version_message(target).filter(|_| !any_api_version) {
        let path = SPEC.field("scaleTargetRef");
        errors.invalid(&path.field("apiVersion"), target.str("apiVersion"), &message);
    }
    metrics::validate(spec, &SPEC.field("metrics"), errors);
    for key in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior").at(key);
        if !rules.is_null() {
            validate_rules(rules, &SPEC.field("behavior").field(key), errors);
        }
    }
    match max {
        0 => errors.required(&SPEC.field("maxReplicas"), ""),
        max if max < 0 => errors.invalid(&SPEC.field("maxReplicas"), max, "must be greater than or equal to 1"),
        _ => {}
    }
}

pub(super) fn validate_object_reference(reference: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for key in ["kind", "name"] {
        match reference.str(key) {
            "" => errors.required(&path.field(key), ""),
            text => errors.invalid_all(&path.field(key), text, validation::path_segment_name(text)),
        }
    }
}

/// In the core group only ReplicationControllers can be scaled.
fn api_version_message(reference: &Tree) -> Option<String> {
    let version = reference.str("apiVersion");
    match version.matches('/').count() {
        0 if reference.str("kind") == "ReplicationController" => None,
        0 => Some("apiVersion must specify API group".to_string()),
        1 => None,
        _ => Some(format!("unexpected GroupVersion string: {version}")),
    }
}

fn validate_rules(rules: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let window_path = path.field("stabilizationWindowSeconds");
    match rules.int("stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => {
            errors.invalid(&window_path, seconds, "must be greater than or equal to zero");
        }
        Some(seconds) if seconds > MAX_WINDOW_SECONDS => {
            errors.invalid(&window_path, seconds, &format!("must be less than or equal to {MAX_WINDOW_SECONDS}"));
        }
        _ => {}
    }
    if let Some(select) = rules.at("selectPolicy").as_str()
        && !matches!(select, "Disabled" | "Max" | "Min")
    {
        errors.not_supported(&path.field("selectPolicy"), select, &["Disabled", "Max", "Min"]);
    }
    let policies = rules.list("policies");
    if policies.is_empty() {
        errors.required(&path.field("policies"), "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        validate_policy(policy, &path.field("policies").index(index), errors);
    }
    if rules.str("tolerance").starts_with('-') {
        errors.invalid(&path.field("tolerance"), rules.at("tolerance"), "must be greater or equal to zero");
    }
}

fn validate_policy(policy: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if !matches!(policy.str("type"), "Percent" | "Pods") {
        errors.not_supported(&path.field("type"), policy.str("type"), &["Percent", "Pods"]);
    }
    let value = policy.int("value").unwrap_or(0);
    if value <= 0 {
        errors.invalid(&path.field("value"), value, "must be greater than zero");
    }
    let seconds = policy.int("periodSeconds").unwrap_or(0);
    if seconds <= 0 {
        errors.invalid(&path.field("periodSeconds"), seconds, "must be greater than zero");
    }
    if seconds > MAX_PERIOD_SECONDS {
        let text = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
        errors.invalid(&path.field("periodSeconds"), seconds, &text);
    }
}

pub(in crate::autoscaling) fn validate_status(autoscaler: &Tree, _: &Tree, errors: &mut Errors) {
    let counts = ["currentReplicas", "desiredReplicas"];
    checks::all_non_negative(autoscaler.at("status"), &counts, &Path::root("status"), errors);
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check(change: impl Fn(&mut Tree), want: &[&str]) {
        let target = tree! { "apiVersion" => "apps/v1", "kind" => "Deployment", "name" => "d" };
        let mut spec = tree! { "scaleTargetRef" => target, "minReplicas" => 1, "maxReplicas" => 3 };
        change(&mut spec);
        let mut errors = Errors::new();
        validate(&tree! { "spec" => spec }, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn specs() {
        check(|_| {}, &[]);
        check(
            |spec| spec.set("maxReplicas", 0),
            &[
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                "spec.maxReplicas: Required value",
            ],
        );
        check(
            |spec| spec.set("scaleTargetRef", tree! {}),
            &[
                "spec.scaleTargetRef.kind: Required value",
                "spec.scaleTargetRef.name: Required value",
                "spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group",
            ],
        );
        let policy = tree! { "type" => "Pods", "value" => 1, "periodSeconds" => 1801 };
        check(
            |spec| spec.set("behavior", tree! { "scaleUp" => tree! { "policies" => list![policy.clone()] } }),
            &[
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        );
    }
}
