//! DaemonSet.

use api::Tree;
use api::field::{Errors, Path};
use api::selector::Selector;

use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, column};
use crate::workload::{self, SPEC};
use crate::{cells, checks, gojson, podspec, strategy};

/// The template generation; a field in versions before v1.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) static KIND: Kind = Kind {
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    set_defaults,
    prepare_create,
    prepare_update,
    validate,
    validate_update,
    warnings: workload::template_warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    columns: &[
        column("Name", "string", "name", 0),
        column("Desired", "integer", "", 0),
        column("Current", "integer", "", 0),
        column("Ready", "integer", "", 0),
        column("Up-to-date", "integer", "", 0),
        column("Available", "integer", "", 0),
        column("Node Selector", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    cells: row,
    ..Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets", "daemonset")
};

fn set_defaults(daemon_set: &mut Tree) {
    // The writer of the object owns the count, as in upstream, where conversion sets it.
    let generation = template_generation(daemon_set);
    set_template_generation(daemon_set, generation);
    let spec = daemon_set.child("spec");
    let strategy = spec.child("updateStrategy");
    if strategy.str("type").is_empty() {
        strategy.set("type", "RollingUpdate");
    }
    if strategy.str("type") == "RollingUpdate" {
        let rolling = strategy.child("rollingUpdate");
        rolling.set_default("maxUnavailable", 1);
        rolling.set_default("maxSurge", 0);
    }
    spec.set_default("revisionHistoryLimit", 10);
    podspec::set_template_defaults(spec.child("template"));
}

fn prepare_create(daemon_set: &mut Tree, context: &Context<'_>) {
    workload::prepare_create(daemon_set, context);
    let generation = template_generation(daemon_set).max(1);
    set_template_generation(daemon_set, generation);
}

fn prepare_update(daemon_set: &mut Tree, old: &Tree, context: &Context<'_>) {
    workload::prepare_update(daemon_set, old, context);
    let changed = daemon_set.at("spec.template") != old.at("spec.template");
    set_template_generation(daemon_set, template_generation(old) + i64::from(changed));
}

fn template_generation(daemon_set: &Tree) -> i64 {
    daemon_set.map("metadata.annotations").str(TEMPLATE_GENERATION).parse().unwrap_or(0)
}

fn set_template_generation(daemon_set: &mut Tree, generation: i64) {
    daemon_set.child("metadata.annotations").set(TEMPLATE_GENERATION, generation.to_string());
}

fn validate(daemon_set: &Tree, errors: &mut Errors) {
    let spec = daemon_set.at("spec");
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    let path = SPEC.field("template");
    podspec::validate_label_selector(selector, &SPEC.field("selector"), errors);
    if let Ok(selector) = Selector::from_object(selector) {
        workload::validate_match(&selector, template, &path, errors);
    }
    if !selector.is_null() && selector.map("matchLabels").is_empty() && selector.list("matchExpressions").is_empty() {
        let value = workload::selector_value(&KIND, selector);
        errors.invalid(&SPEC.field("selector"), value, "empty selector is invalid for daemonset");
    }
    podspec::validate_template(template, &path, errors);
    workload::validate_read_only_disks(template, &path, errors);
    workload::validate_running_template(template, "DaemonSet", &path, errors);
    checks::non_negative(spec, "minReadySeconds", &SPEC, errors);
    validate_strategy(spec.at("updateStrategy"), &SPEC.field("updateStrategy"), errors);
    checks::non_negative(spec, "revisionHistoryLimit", &SPEC, errors);
}

fn validate_strategy(strategy: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match strategy.str("type") {
        "OnDelete" => {}
        "RollingUpdate" if strategy.has("rollingUpdate") => {
            validate_rolling_update(strategy.at("rollingUpdate"), &path.field("rollingUpdate"), errors);
        }
        "RollingUpdate" => errors.required(&path.field("rollingUpdate"), ""),
        _ => errors.not_supported(path, gojson::value(strategy, super::STRATEGY), &["RollingUpdate", "OnDelete"]),
    }
}

/// Either maxUnavailable or maxSurge must be zero.
fn validate_rolling_update(rolling: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for key in ["maxUnavailable", "maxSurge"] {
        checks::int_or_percent(rolling.at(key), &path.field(key), errors);
    }
    for key in ["maxUnavailable", "maxSurge"] {
        checks::at_most_100_percent(rolling.at(key), &path.field(key), errors);
    }
    let some = |key: &str| checks::int_or_percent_value(rolling.at(key)) != 0;
    match (some("maxUnavailable"), some("maxSurge")) {
        (true, true) => {
            let text = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&path.field("maxSurge"), rolling.at("maxSurge"), text);
        }
        (false, false) => errors.required(&path.field("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

fn validate_update(daemon_set: &Tree, old: &Tree, errors: &mut Errors) {
    validate(daemon_set, errors);
    workload::validate_selector_update(&KIND, daemon_set, old, errors);
}

fn validate_status(daemon_set: &Tree, old: &Tree, errors: &mut Errors) {
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    checks::all_non_negative(daemon_set.at("status"), &counts, &Path::root("status"), errors);
    workload::validate_collision_count(daemon_set, old, errors);
}

fn row(daemon_set: &Tree, now: i64) -> Vec<Tree> {
    let mut row = vec![cells::name(daemon_set)];
    let counts = [
        "status.desiredNumberScheduled",
        "status.currentNumberScheduled",
        "status.numberReady",
        "status.updatedNumberScheduled",
        "status.numberAvailable",
    ];
    row.extend(counts.map(|path| workload::count_cell(daemon_set, path)));
    row.push(Tree::from(cells::labels(daemon_set.map("spec.template.spec.nodeSelector"))));
    row.push(cells::age(daemon_set, now));
    let selector = cells::label_selector(daemon_set.at("spec.selector"));
    row.extend(workload::container_cells(daemon_set.at("spec.template"), selector));
    row
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;
    use crate::kind::User;

    #[test]
    fn counts_template_generations() {
        let user = User::default();
        let context = Context { now: 0, user: &user };
        let with = |label: &str| {
            let template = tree! { "metadata" => tree! { "labels" => tree! { "a" => label } } };
            tree! { "spec" => tree! { "template" => template } }
        };
        let mut old = with("x");
        prepare_create(&mut old, &context);
        assert_eq!(template_generation(&old), 1);
        let mut new = with("y");
        prepare_update(&mut new, &old, &context);
        assert_eq!(template_generation(&new), 2);
        assert_eq!(new.int("metadata.generation"), Some(2));
    }

    #[test]
    fn one_of_surge_and_unavailable() {
        let cases = [
            (tree! { "maxUnavailable" => 1, "maxSurge" => 0 }, ""),
            (
                tree! { "maxUnavailable" => 1, "maxSurge" => "5%" },
                "r.maxSurge: Invalid value: \"5%\": may not be set when maxUnavailable is non-zero",
            ),
            (
                tree! { "maxUnavailable" => 0, "maxSurge" => 0 },
                "r.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ),
        ];
        for (rolling, want) in cases {
            let mut errors = Errors::new();
            validate_rolling_update(&rolling, &Path::root("r"), &mut errors);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(text, want);
        }
    }
}
