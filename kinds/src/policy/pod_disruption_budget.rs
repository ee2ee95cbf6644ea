//! PodDisruptionBudget.

use api::Tree;
use api::field::{Errors, Path, Value};

use crate::conditions::validate_conditions;
use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::podspec::validate_label_selector;
use crate::{cells, checks, strategy};

const SPEC: Path<'static> = Path::root("spec");

pub(crate) static KIND: Kind = Kind {
    short_names: &["pdb"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    prepare_create: strategy::create,
    prepare_update: strategy::update,
    validate,
    validate_update: |budget, _, errors| validate(budget, errors),
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    unconditional_update: false,
    columns: &[
        column("Name", "string", "name", 0),
        column("Min Available", "string", "", 0),
        column("Max Unavailable", "string", "", 0),
        column("Allowed Disruptions", "integer", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    ..Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
};

fn validate(budget: &Tree, errors: &mut Errors) {
    let spec = budget.at("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        errors.invalid(&SPEC, spec_value(spec), "minAvailable and maxUnavailable cannot be both set");
    }
    for key in ["minAvailable", "maxUnavailable"] {
        checks::int_or_percent(spec.at(key), &SPEC.field(key), errors);
        checks::at_most_100_percent(spec.at(key), &SPEC.field(key), errors);
    }
    validate_label_selector(spec.at("selector"), &SPEC.field("selector"), errors);
    let policy = spec.at("unhealthyPodEvictionPolicy").as_str();
    if let Some(policy) = policy.filter(|policy| !matches!(*policy, "AlwaysAllow" | "IfHealthyBudget")) {
        let path = SPEC.field("unhealthyPodEvictionPolicy");
        errors.not_supported(&path, policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
}

/// The spec in upstream's internal form.
fn spec_value(spec: &Tree) -> Value {
    let text = |key: &str| String::from_utf8_lossy(&api::json::encode(spec.at(key), None)).into_owned();
    Value::raw(format!(
        r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
        text("minAvailable"),
        checks::shown_text(&KIND, "spec.selector", spec.at("selector")),
        text("maxUnavailable"),
        text("unhealthyPodEvictionPolicy"),
    ))
}

fn validate_status(budget: &Tree, _: &Tree, errors: &mut Errors) {
    let status = Path::root("status");
    validate_conditions(budget.list("status.conditions"), &status.field("conditions"), errors);
    let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    checks::all_non_negative(budget.at("status"), &counts, &status, errors);
}

fn row(budget: &Tree, now: i64) -> Vec<Tree> {
    let limit = |key: &str| match budget.at("spec").at(key) {
        Tree::Str(percent) => Tree::Str(percent.clone()),
        Tree::Int(number) => Tree::from(number.to_string()),
        _ => Tree::from("N/A"),
    };
    vec![
        cells::name(budget),
        limit("minAvailable"),
        limit("maxUnavailable"),
        Tree::from(budget.int("status.disruptionsAllowed").unwrap_or(0)),
        cells::age(budget, now),
    ]
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn only_one_limit_is_allowed() {
        let selector = tree! { "matchLabels" => tree! { "a" => "b" } };
        let spec = tree! { "minAvailable" => 1, "maxUnavailable" => "5%", "selector" => selector };
        let mut errors = Errors::new();
        validate(&tree! { "spec" => spec }, &mut errors);
        let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let want = r#"spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":"5%","UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set"#;
        assert_eq!(text, want);
    }
}
