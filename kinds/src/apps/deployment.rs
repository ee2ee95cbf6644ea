//! Deployment.

use api::Tree;
use api::field::{Errors, Path};

use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, bump_generation, column, keep_old};
use crate::workload::{self, SPEC};
use crate::{cells, checks, gojson, podspec, scale, strategy};

pub(crate) static KIND: Kind = Kind {
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "scale",
            gvk: Some(("autoscaling", "v1", "Scale")),
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    set_defaults,
    prepare_create: workload::prepare_create,
    prepare_update,
    validate,
    validate_update,
    warnings: workload::warnings,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare_status,
        validate: validate_status,
        reset: &["spec", "metadata.labels"],
    }),
    scale: Some(scale::REPLICAS),
    columns: &[
        column("Name", "string", "name", 0),
        column("Ready", "string", "", 0),
        column("Up-to-date", "string", "", 0),
        column("Available", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    cells: row,
    ..Kind::namespaced("apps", "v1", "Deployment", "deployments", "deployment")
};

fn set_defaults(deployment: &mut Tree) {
    let spec = deployment.child("spec");
    spec.set_default("replicas", 1);
    let strategy = spec.child("strategy");
    if strategy.str("type").is_empty() {
        strategy.set("type", "RollingUpdate");
    }
    if strategy.str("type") == "RollingUpdate" {
        let rolling = strategy.child("rollingUpdate");
        rolling.set_default("maxUnavailable", "25%");
        rolling.set_default("maxSurge", "25%");
    }
    spec.set_default("revisionHistoryLimit", 10);
    spec.set_default("progressDeadlineSeconds", 600);
    podspec::set_template_defaults(spec.child("template"));
}

/// Annotation changes also increment the generation: the controller copies them to ReplicaSets.
fn prepare_update(deployment: &mut Tree, old: &Tree, _: &Context<'_>) {
    workload::drop_disabled(deployment, old);
    keep_old(deployment, old, "status");
    bump_generation(deployment, old, &["spec", "metadata.annotations"]);
}

fn prepare_status(deployment: &mut Tree, old: &Tree, context: &Context<'_>) {
    strategy::update_status(deployment, old, context);
    keep_old(deployment.child("metadata"), old.at("metadata"), "labels");
}

fn validate(deployment: &Tree, errors: &mut Errors) {
    let spec = deployment.at("spec");
    checks::non_negative(spec, "replicas", &SPEC, errors);
    super::replica_set::validate_selector_and_template(&KIND, spec, errors);
    validate_strategy(spec.at("strategy"), &SPEC.field("strategy"), errors);
    checks::all_non_negative(spec, &["minReadySeconds", "revisionHistoryLimit"], &SPEC, errors);
    checks::non_negative(spec, "progressDeadlineSeconds", &SPEC, errors);
    if let Some(deadline) = spec.int("progressDeadlineSeconds")
        && deadline <= spec.int("minReadySeconds").unwrap_or(0)
    {
        errors.invalid(&SPEC.field("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn validate_strategy(strategy: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.field("rollingUpdate");
    match strategy.str("type") {
        "Recreate" if strategy.has("rollingUpdate") => {
            errors.forbidden(&rolling_path, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" if strategy.has("rollingUpdate") => {
            validate_rolling_update(strategy.at("rollingUpdate"), &rolling_path, errors);
        }
        "RollingUpdate" => errors.required(&rolling_path, "this should be defaulted and never be nil"),
        _ => errors.not_supported(path, gojson::value(strategy, super::STRATEGY), &["Recreate", "RollingUpdate"]),
    }
}

fn validate_rolling_update(rolling: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    let unavailable_path = path.field("maxUnavailable");
    checks::int_or_percent(unavailable, &unavailable_path, errors);
    checks::int_or_percent(surge, &path.field("maxSurge"), errors);
    if checks::int_or_percent_value(unavailable) == 0 && checks::int_or_percent_value(surge) == 0 {
        errors.invalid(&unavailable_path, unavailable, "may not be 0 when `maxSurge` is 0");
    }
    checks::at_most_100_percent(unavailable, &unavailable_path, errors);
}

fn validate_update(deployment: &Tree, old: &Tree, errors: &mut Errors) {
    validate(deployment, errors);
    workload::validate_selector_update(&KIND, deployment, old, errors);
}

fn validate_status(deployment: &Tree, old: &Tree, errors: &mut Errors) {
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    workload::validate_counts(deployment.at("status"), &counts, &parts, "readyReplicas", errors);
    workload::validate_collision_count(deployment, old, errors);
}

fn row(deployment: &Tree, now: i64) -> Vec<Tree> {
    let count = |path: &str| deployment.int(path).unwrap_or(0);
    // Unlike other kinds, an empty selector is printed as nothing.
    let selector = cells::label_selector(deployment.at("spec.selector"));
    let mut row = vec![
        cells::name(deployment),
        Tree::from(format!("{}/{}", count("status.readyReplicas"), count("spec.replicas"))),
        workload::count_cell(deployment, "status.updatedReplicas"),
        workload::count_cell(deployment, "status.availableReplicas"),
        cells::age(deployment, now),
    ];
    row.extend(workload::container_cells(deployment.at("spec.template"), selector.replace("<none>", "")));
    row
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check(change: impl Fn(&mut Tree), want: &[&str]) {
        let labels = || tree! { "a" => "b" };
        let containers = list![tree! { "name" => "c", "image" => "i" }];
        let template =
            tree! { "metadata" => tree! { "labels" => labels() }, "spec" => tree! { "containers" => containers } };
        let spec = tree! { "selector" => tree! { "matchLabels" => labels() }, "template" => template };
        let mut deployment = tree! { "spec" => spec };
        change(deployment.child("spec"));
        set_defaults(&mut deployment);
        let mut errors = Errors::new();
        validate(&deployment, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn specs() {
        check(|_| {}, &[]);
        check(
            |spec| spec.set("selector", tree! { "matchLabels" => tree! { "a" => "z" } }),
            &[
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        );
        check(
            |spec| spec.set("strategy", tree! { "type" => "Foo" }),
            &[
                "spec.strategy: Unsupported value: {\"Type\":\"Foo\",\"RollingUpdate\":null}: supported values: \"Recreate\", \"RollingUpdate\"",
            ],
        );
        check(
            |spec| {
                let rolling = tree! { "maxSurge" => 0, "maxUnavailable" => 0 };
                spec.set("strategy", tree! { "rollingUpdate" => rolling });
            },
            &["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
        );
        check(
            |spec| spec.set("minReadySeconds", 700),
            &["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"],
        );
    }
}
