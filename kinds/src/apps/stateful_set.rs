//! StatefulSet.

use std::borrow::Cow;

use api::field::{Errors, Path, Value};
use api::{Tree, tree, validation};

use crate::gojson::{self, EMPTY, GoField, NULL, field};
use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::podspec::small_set::SmallSet;
use crate::workload::{self, SPEC};
use crate::{cells, checks, internal, meta, podspec, scale, strategy};

const ROLLING: &[GoField] = &[field("partition", "Partition", "0"), field("maxUnavailable", "MaxUnavailable", NULL)];
const CLAIM_STATUS: &[GoField] = &[
    field("phase", "Phase", EMPTY),
    field("accessModes", "AccessModes", NULL),
    field("capacity", "Capacity", NULL),
    field("conditions", "Conditions", NULL),
    field("allocatedResources", "AllocatedResources", NULL),
    field("allocatedResourceStatuses", "AllocatedResourceStatuses", NULL),
    field("currentVolumeAttributesClassName", "CurrentVolumeAttributesClassName", NULL),
    field("modifyVolumeStatus", "ModifyVolumeStatus", NULL),
    field("healthStatus", "HealthStatus", NULL),
];

pub(crate) static KIND: Kind = Kind {
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "scale",
            gvk: Some(("autoscaling", "v1", "Scale")),
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    validate_name: crate::names::dns_label,
    set_defaults,
    prepare_create: workload::prepare_create,
    prepare_update: workload::prepare_update,
    validate,
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    scale: Some(scale::REPLICAS),
    columns: &[
        column("Name", "string", "name", 0),
        column("Ready", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
    ],
    cells: row,
    ..Kind::namespaced("apps", "v1", "StatefulSet", "statefulsets", "statefulset")
};

fn set_defaults(stateful_set: &mut Tree) {
    let spec = stateful_set.child("spec");
    if spec.str("podManagementPolicy").is_empty() {
        spec.set("podManagementPolicy", "OrderedReady");
    }
    set_strategy_defaults(spec.child("updateStrategy"));
    let retention = spec.child("persistentVolumeClaimRetentionPolicy");
    retention.set_default("whenDeleted", "Retain");
    retention.set_default("whenScaled", "Retain");
    spec.set_default("replicas", 1);
    spec.set_default("revisionHistoryLimit", 10);
    podspec::set_template_defaults(spec.child("template"));
    for claim in spec.list_mut("volumeClaimTemplates") {
        claim.set("apiVersion", "v1");
        claim.set("kind", "PersistentVolumeClaim");
        podspec::claim::set_spec_defaults(claim.child("spec"));
        claim.child("status").set_default("phase", "Pending");
    }
}

fn set_strategy_defaults(strategy: &mut Tree) {
    if strategy.str("type").is_empty() {
        strategy.set("type", "RollingUpdate");
        strategy.child("rollingUpdate");
    }
    if strategy.str("type") == "RollingUpdate" && strategy.has("rollingUpdate") {
        let rolling = strategy.child("rollingUpdate");
        rolling.set_default("partition", 0);
        rolling.set_default("maxUnavailable", 1);
    }
}

/// Parts of the spec that an update does not validate: they are immutable, or were stored by an older server.
#[derive(Default)]
struct SkippedChecks {
    service_name: bool,
    template: bool,
    claims: bool,
}

fn validate(stateful_set: &Tree, errors: &mut Errors) {
    validate_spec(stateful_set.at("spec"), &SkippedChecks::default(), errors);
}

fn validate_spec(spec: &Tree, skip: &SkippedChecks, errors: &mut Errors) {
    match spec.str("podManagementPolicy") {
        "" => errors.required(&SPEC.field("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&SPEC.field("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    validate_strategy(spec.at("updateStrategy"), &SPEC.field("updateStrategy"), errors);
    validate_retention(spec.at("persistentVolumeClaimRetentionPolicy"), errors);
    if !skip.claims {
        validate_claims(spec.list("volumeClaimTemplates"), errors);
    }
    checks::all_non_negative(spec, &["replicas", "minReadySeconds"], &SPEC, errors);
    checks::non_negative(spec.at("ordinals"), "start", &SPEC.field("ordinals"), errors);
    let name = spec.str("serviceName");
    if !skip.service_name && !name.is_empty() {
        errors.invalid_all(&SPEC.field("serviceName"), name, validation::dns1123_label(name));
    }
    validate_selector_and_template(spec, skip, errors);
    workload::validate_running_template(spec.at("template"), "StatefulSet", &SPEC.field("template"), errors);
}

fn validate_selector_and_template(spec: &Tree, skip: &SkippedChecks, errors: &mut Errors) {
    let selector = workload::validate_selector(&KIND, spec, "empty selector is invalid for statefulset", errors);
    let Some(selector) = selector else {
        let value = workload::selector_value(&KIND, spec.at("selector"));
        errors.invalid(&SPEC.field("selector"), value, "");
        return;
    };
    let (template, path) = (template_of_pods(spec), SPEC.field("template"));
    workload::validate_match(&selector, &template, &path, errors);
    if !skip.template {
        podspec::validate_template(&template, &path, errors);
    }
    validate_template_metadata(&template, &path, errors);
}

/// The template as the controller completes it: with claims as volumes, without the names it replaces.
fn template_of_pods(spec: &Tree) -> Cow<'_, Tree> {
    let template = spec.at("template");
    let claims = spec.list("volumeClaimTemplates");
    let replaced = |key: &str| !template.at("spec").str(key).is_empty();
    if claims.is_empty() && !replaced("hostname") && !replaced("subdomain") {
        return Cow::Borrowed(template);
    }
    let mut template = template.clone();
    let pod_spec = template.child("spec");
    pod_spec.remove("hostname");
    pod_spec.remove("subdomain");
    if !claims.is_empty() {
        let volumes = with_claims(pod_spec.list("volumes"), claims);
        pod_spec.set("volumes", Tree::List(volumes));
    }
    Cow::Owned(template)
}

/// A claim replaces a volume of the same name.
fn with_claims(volumes: &[Tree], claims: &[Tree]) -> Vec<Tree> {
    let mut names = SmallSet::new();
    let mut all = Vec::with_capacity(volumes.len() + claims.len());
    for name in claims.iter().map(|claim| claim.str("metadata.name")) {
        if names.insert(name) {
            all.push(tree! { "name" => name, "persistentVolumeClaim" => tree! { "claimName" => name } });
        }
    }
    all.extend(volumes.iter().filter(|volume| !names.contains(&volume.str("name"))).cloned());
    all
}

/// Upstream validates these a second time, even if it skips the template as a whole.
fn validate_template_metadata(template: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (labels, annotations) = (template.map("metadata.labels"), template.map("metadata.annotations"));
    meta::validate_labels(labels, &path.field("labels"), errors);
    meta::validate_annotations(annotations, &path.field("annotations"), errors);
    podspec::annotations::validate(annotations, template.at("spec"), &path.field("annotations"), errors);
}

fn validate_strategy(strategy: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (rolling, rolling_path) = (strategy.at("rollingUpdate"), path.field("rollingUpdate"));
    match strategy.str("type") {
        "" => errors.required(path, ""),
        "OnDelete" if rolling.is_null() => {}
        "OnDelete" => {
            errors.invalid(
                &rolling_path,
                gojson::value(rolling, ROLLING),
                "only allowed for updateStrategy 'RollingUpdate'",
            );
        }
        "RollingUpdate" => validate_rolling_update(rolling, &rolling_path, errors),
        _ => errors.invalid(path, gojson::value(strategy, super::STRATEGY), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

fn validate_rolling_update(rolling: &Tree, path: &Path<'_>, errors: &mut Errors) {
    checks::non_negative(rolling, "partition", path, errors);
    let unavailable = rolling.at("maxUnavailable");
    if unavailable.is_null() {
        return;
    }
    let path = path.field("maxUnavailable");
    checks::int_or_percent(unavailable, &path, errors);
    if checks::int_or_percent_value(unavailable) == 0 {
        errors.invalid(&path, unavailable, "cannot be 0");
    }
    checks::at_most_100_percent(unavailable, &path, errors);
}

fn validate_retention(policy: &Tree, errors: &mut Errors) {
    if policy.is_null() {
        return;
    }
    let path = SPEC.field("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        if !matches!(policy.str(key), "Retain" | "Delete") {
            errors.not_supported(&path.field(key), policy.str(key), &["Retain", "Delete"]);
        }
    }
}

fn validate_claims(claims: &[Tree], errors: &mut Errors) {
    let path = SPEC.field("volumeClaimTemplates");
    for (index, claim) in claims.iter().enumerate() {
        podspec::claim::validate_spec(claim.at("spec"), &path.index(index).field("spec"), errors);
    }
}

fn validate_update(stateful_set: &Tree, old: &Tree, errors: &mut Errors) {
    let mut skip = SkippedChecks { service_name: true, template: false, claims: true };
    let mut old_errors = Errors::new();
    validate_spec(old.at("spec"), &skip, &mut old_errors);
    skip.template = !old_errors.is_empty();
    validate_spec(stateful_set.at("spec"), &skip, errors);
    let specs = (stateful_set.at("spec"), old.at("spec"));
    workload::validate_selector_update(&KIND, stateful_set, old, errors);
    checks::immutable(specs, "volumeClaimTemplates", claims_value, &SPEC, errors);
    checks::immutable(specs, "serviceName", |name| name.into(), &SPEC, errors);
    checks::immutable(specs, "podManagementPolicy", |policy| policy.into(), &SPEC, errors);
}

fn claims_value(claims: &Tree) -> Value {
    let Some(claims) = claims.as_list() else { return gojson::null() };
    let text = |claim: &Tree| {
        let spec = internal::shown_text(claim.at("spec"), "PersistentVolumeClaimSpec");
        let status = gojson::text(claim.at("status"), CLAIM_STATUS);
        internal::shown_object(claim.at("metadata"), &[("Spec", spec), ("Status", status)])
    };
    let texts: Vec<String> = claims.iter().map(text).collect();
    Value::raw(format!("[{}]", texts.join(",")))
}

fn validate_status(stateful_set: &Tree, old: &Tree, errors: &mut Errors) {
    let counts = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    workload::validate_counts(stateful_set.at("status"), &counts, &counts[1..5], "status.readyReplicas", errors);
    workload::validate_collision_count(stateful_set, old, errors);
}

fn warnings(stateful_set: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings = workload::template_warnings(stateful_set, old);
    let path = SPEC.field("volumeClaimTemplates");
    for (index, claim) in stateful_set.list("spec.volumeClaimTemplates").iter().enumerate() {
        let at = path.index(index);
        // Upstream's paths differ between create and update.
        let at = if old.is_some() { at.field("Spec") } else { at };
        warnings.extend(podspec::claim::spec_warnings(claim.at("spec"), &at));
    }
    if stateful_set.int("spec.revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        let text =
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.push(text.to_string());
    }
    warnings
}

fn row(stateful_set: &Tree, now: i64) -> Vec<Tree> {
    let count = |path: &str| stateful_set.int(path).unwrap_or(0);
    let (names, images) = podspec::names_and_images(stateful_set.at("spec.template.spec"));
    vec![
        cells::name(stateful_set),
        Tree::from(format!("{}/{}", count("status.readyReplicas"), count("spec.replicas"))),
        cells::age(stateful_set, now),
        Tree::from(names),
        Tree::from(images),
    ]
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn check_strategy(strategy: Tree, want: &str) {
        let mut strategy = strategy;
        set_strategy_defaults(&mut strategy);
        let mut errors = Errors::new();
        validate_strategy(&strategy, &Path::root("s"), &mut errors);
        let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        assert_eq!(text, want);
    }

    #[test]
    fn strategies() {
        check_strategy(tree! {}, "");
        check_strategy(tree! { "type" => "OnDelete" }, "");
        check_strategy(
            tree! { "type" => "OnDelete", "rollingUpdate" => tree! {} },
            r#"s.rollingUpdate: Invalid value: {"Partition":0,"MaxUnavailable":null}: only allowed for updateStrategy 'RollingUpdate'"#,
        );
        check_strategy(
            tree! { "rollingUpdate" => tree! { "maxUnavailable" => 0 } },
            "s.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
        );
        check_strategy(
            tree! { "type" => "X" },
            r#"s: Invalid value: {"Type":"X","RollingUpdate":null}: must be 'RollingUpdate' or 'OnDelete'"#,
        );
    }

    fn stateful_set(pod_spec: Tree, claims: &[&str]) -> Tree {
        let labels = || tree! { "a" => "b" };
        let template = tree! { "metadata" => tree! { "labels" => labels() }, "spec" => pod_spec };
        let storage = || tree! { "requests" => tree! { "storage" => "1Gi" } };
        let claim = |name: &&str| {
            let spec = tree! { "accessModes" => list!["ReadWriteOnce"], "resources" => storage() };
            tree! { "metadata" => tree! { "name" => *name }, "spec" => spec }
        };
        let mut stateful_set = tree! { "spec" => tree! {
            "selector" => tree! { "matchLabels" => labels() },
            "template" => template,
            "volumeClaimTemplates" => Tree::List(claims.iter().map(claim).collect()),
        } };
        set_defaults(&mut stateful_set);
        stateful_set
    }

    fn texts(errors: &Errors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn validates_templates_with_claims() {
        let container = |mount: &str| {
            let mounts = list![tree! { "name" => mount, "mountPath" => "/data" }];
            tree! { "name" => "c", "image" => "i", "volumeMounts" => mounts }
        };
        let shadowed = list![tree! { "name" => "data", "hostPath" => tree! { "path" => "" } }];
        let no_name = tree! { "image" => "i" };
        let cases = [
            (tree! { "containers" => list![container("data")] }, &["data"][..], &[][..]),
            (tree! { "containers" => list![container("data")], "volumes" => shadowed }, &["data"], &[]),
            (
                tree! { "containers" => list![container("data")], "hostname" => "_", "subdomain" => "_" },
                &["data", "data"],
                &[],
            ),
            (
                tree! { "containers" => list![container("other")] },
                &["data"],
                &["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"other\""],
            ),
            (tree! { "containers" => list![no_name] }, &[], &["spec.template.spec.containers[0].name: Required value"]),
        ];
        for (pod_spec, claims, want) in cases {
            let mut errors = Errors::new();
            validate(&stateful_set(pod_spec, claims), &mut errors);
            assert_eq!(texts(&errors), want);
        }
    }

    #[test]
    fn updates_tolerate_invalid_stored_templates() {
        let spec = |image: &str| tree! { "containers" => list![tree! { "image" => image }] };
        let valid = stateful_set(tree! { "containers" => list![tree! { "name" => "c", "image" => "i" }] }, &[]);
        let no_name: &[&str] = &["spec.template.spec.containers[0].name: Required value"];
        for (old, want) in [(stateful_set(spec("i"), &[]), &[][..]), (valid, no_name)] {
            let mut errors = Errors::new();
            validate_update(&stateful_set(spec("j"), &[]), &old, &mut errors);
            assert_eq!(texts(&errors), want);
        }
    }
}
