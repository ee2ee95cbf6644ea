//! Validation of a Job and its updates.

use api::field::{Errors, Path, Value};
use api::selector::Selector;
use api::{Tree, tree, validation};

use super::policies::{validate_failure_policy, validate_success_policy};
use super::prepare::{CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME};
use super::{KIND, is_true};
use crate::gojson::{GoField, NULL, field};
use crate::workload::{self, SPEC};
use crate::{checks, gojson, internal, podspec};

const MAX_PARALLELISM: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
/// Above this number of completions, backoff per index has lower limits.
const MANY_COMPLETIONS: i64 = 100_000;
const LIMIT_FOR_MANY: i64 = 10_000;
const MANAGED_BY_MAX: usize = 63;

pub(super) fn validate(job: &Tree, errors: &mut Errors) {
    validate_generated_selector(job, errors);
    validate_whole_spec(job, errors);
    validate_host_names(job, errors);
}

fn validate_host_names(job: &Tree, errors: &mut Errors) {
    let completions = job.int("spec.completions").unwrap_or(0);
    if job.str("spec.completionMode") == "Indexed" && completions > 0 {
        // The pods' hostnames end with their index.
        let name = job.str("metadata.name");
        let host = format!("{name}-{}", completions - 1);
        if !validation::dns1123_label(&host).is_empty() {
            let metadata = Path::root("metadata");
            let text = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(&metadata.field("name"), name, &text);
        }
    }
}

fn validate_whole_spec(job: &Tree, errors: &mut Errors) {
    let spec = job.at("spec");
    validate_spec(spec, &SPEC, errors);
    if spec.has("selector") {
        podspec::validate_label_selector(spec.at("selector"), &SPEC.field("selector"), errors);
    } else {
        errors.required(&SPEC.field("selector"), "");
    }
    if let Ok(selector) = Selector::from_object(spec.at("selector")) {
        workload::validate_match(&selector, spec.at("template"), &SPEC.field("template"), errors);
    }
}

/// The generated labels must be present and match the selector.
fn validate_generated_selector(job: &Tree, errors: &mut Errors) {
    let selector = job.at("spec.selector");
    if job.bool("spec.manualSelector") || selector.is_null() {
        return;
    }
    let (uid, name) = (job.str("metadata.uid"), job.str("metadata.name"));
    if uid.is_empty() {
        let metadata = Path::root("metadata");
        errors.required(&metadata.field("uid"), "");
    }
    let expected = [(LEGACY_CONTROLLER_UID, uid), (LEGACY_JOB_NAME, name), (CONTROLLER_UID, uid), (JOB_NAME, name)];
    for (key, value) in expected {
        validate_label(job.at("spec.template.metadata.labels"), key, value, errors);
    }
    let labels = tree! {
        LEGACY_CONTROLLER_UID => uid, LEGACY_JOB_NAME => name, CONTROLLER_UID => uid, JOB_NAME => name,
    };
    let found = Selector::from_object(selector)
        .is_ok_and(|found| !labels.as_map().is_some_and(|labels| found.matches_map(labels)));
    if found {
        let value = workload::selector_value(&KIND, selector);
        errors.invalid(&SPEC.field("selector"), value, "`selector` not auto-generated");
    }
}

fn validate_label(labels: &Tree, key: &str, value: &str, errors: &mut Errors) {
    let template = SPEC.field("template");
    let metadata = template.field("metadata");
    let path = metadata.field("labels");
    let text = format!("must be '{value}'");
    match labels.as_map().and_then(|map| map.get(key)) {
        None => errors.required(&path.key(key), &text),
        Some(found) if found.as_str() != Some(value) => errors.invalid(&path.key(key), labels, &text),
        Some(_) => {}
    }
}

/// Shared by Jobs and CronJob templates.
pub(in crate::batch) fn validate_spec(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    checks::all_non_negative(spec, &counts, path, errors);
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    validate_managed_by(spec, path, errors);
    validate_completion_mode(spec, path, errors);
    if spec.has("podFailurePolicy") {
        validate_failure_policy(spec, &path.field("podFailurePolicy"), errors);
    }
    if spec.has("successPolicy") {
        let path = path.field("successPolicy");
        if spec.str("completionMode") == "Indexed" {
            validate_success_policy(spec, &path, errors);
        } else {
            let value = success_policy_value(spec.at("successPolicy"));
            errors.invalid(&path, value, "requires indexed completion mode");
        }
    }
    validate_replacement_policy(spec, &path.field("podReplacementPolicy"), errors);
    podspec::validate_template(spec.at("template"), &path.field("template"), errors);
    validate_restart_policy(spec, path, errors);
}

fn validate_managed_by(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(manager) = spec.at("managedBy").as_str() else { return };
    for (value, message) in validation::domain_prefixed_path(manager) {
        errors.invalid(&path.field("managedBy"), value, &message);
    }
    if manager.len() > MANAGED_BY_MAX {
        errors.too_long(&path.field("managedBy"), MANAGED_BY_MAX);
    }
}

fn validate_completion_mode(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match spec.at("completionMode").as_str() {
        None | Some("NonIndexed") => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(number) = spec.int(key) {
                    errors.invalid(&path.field(key), number, "requires indexed completion mode");
                }
            }
        }
        Some("Indexed") => validate_indexed(spec, path, errors),
        Some(other) => errors.not_supported(&path.field("completionMode"), other, &["NonIndexed", "Indexed"]),
    }
}

fn validate_indexed(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (completions, failed) = (spec.int("completions"), spec.int("maxFailedIndexes"));
    if completions.is_none() {
        errors.required(&path.field("completions"), "when completion mode is Indexed");
    }
    let at_most = |key: &str, limit: i64, suffix: &str, errors: &mut Errors| {
        if let Some(number) = spec.int(key).filter(|number| *number > limit) {
            let text = format!("must be less than or equal to {limit}{suffix}");
            errors.invalid(&path.field(key), number, &text);
        }
    };
    at_most("parallelism", MAX_PARALLELISM, " when completion mode is Indexed", errors);
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        errors.invalid(&path.field("maxFailedIndexes"), failed, "must be less than or equal to completions");
    }
    at_most("maxFailedIndexes", MAX_FAILED_INDEXES, "", errors);
    if completions.is_some_and(|number| number > MANY_COMPLETIONS) && spec.has("backoffLimitPerIndex") {
        if failed.is_none() {
            let text = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.required(&path.field("maxFailedIndexes"), &text);
        }
        let suffix = format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        at_most("parallelism", LIMIT_FOR_MANY, &suffix, errors);
        at_most("maxFailedIndexes", LIMIT_FOR_MANY, &suffix, errors);
    }
}

const SUCCESS_RULE: &[GoField] =
    &[field("succeededIndexes", "SucceededIndexes", NULL), field("succeededCount", "SucceededCount", NULL)];

fn success_policy_value(policy: &Tree) -> Value {
    let rules: Vec<String> = policy.list("rules").iter().map(|rule| gojson::text(rule, SUCCESS_RULE)).collect();
    let rules = if rules.is_empty() { NULL.to_string() } else { format!("[{}]", rules.join(",")) };
    Value::raw(format!("{{\"Rules\":{rules}}}"))
}

/// With a failure policy only finished pods are replaced.
fn validate_replacement_policy(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = spec.at("podReplacementPolicy").as_str() else { return };
    let supported: &[&str] =
        if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !supported.contains(&policy) {
        errors.not_supported(path, policy, supported);
    }
}

fn validate_restart_policy(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let template = path.field("template");
    let template_spec = template.field("spec");
    let path = template_spec.field("restartPolicy");
    match spec.str("template.spec.restartPolicy") {
        "Never" => {}
        "OnFailure" if spec.has("podFailurePolicy") => {
            errors.invalid(&path, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        // "Always" is also the default of templates.
        "" | "Always" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        other => errors.not_supported(&path, other, &["OnFailure", "Never"]),
    }
}

pub(super) fn validate_update(job: &Tree, old: &Tree, errors: &mut Errors) {
    validate_whole_spec(job, errors);
    let specs = (job.at("spec"), old.at("spec"));
    validate_completions_update(specs, errors);
    workload::validate_selector_update(&KIND, job, old, errors);
    validate_template_update(job, old, errors);
    checks::immutable(specs, "completionMode", |mode| mode.into(), &SPEC, errors);
    checks::immutable(specs, "podFailurePolicy", failure_policy_value, &SPEC, errors);
    checks::immutable(specs, "backoffLimitPerIndex", |limit| limit.into(), &SPEC, errors);
    checks::immutable(specs, "managedBy", |manager| manager.into(), &SPEC, errors);
    let success = |policy: &Tree| if policy.is_null() { gojson::null() } else { success_policy_value(policy) };
    checks::immutable(specs, "successPolicy", success, &SPEC, errors);
    validate_host_names(job, errors);
}

/// The completions of an indexed Job may change together with its parallelism.
fn validate_completions_update((spec, old): (&Tree, &Tree), errors: &mut Errors) {
    if spec.str("completionMode") != "Indexed" {
        return checks::immutable((spec, old), "completions", |number| number.into(), &SPEC, errors);
    }
    let completions = spec.int("completions");
    if let Some(number) = completions
        && completions != old.int("completions")
        && completions != spec.int("parallelism")
    {
        let text = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&SPEC.field("completions"), number, text);
    }
}

/// The scheduling fields of a suspended Job's template may change.
fn validate_template_update(job: &Tree, old: &Tree, errors: &mut Errors) {
    let (template, stored) = (job.at("spec.template"), old.at("spec.template"));
    if template == stored {
        return;
    }
    let spec = || internal::shown_text(template.at("spec"), "PodSpec");
    if !is_idle(old) {
        let value = internal::shown_object(template.at("metadata"), &[("Spec", spec())]);
        errors.invalid(&SPEC.field("template"), Value::raw(value), "field is immutable");
    } else if without_placement(template).at("spec") != without_placement(stored).at("spec") {
        errors.invalid(&SPEC.field("template.spec"), Value::raw(spec()), "field is immutable");
    }
}

/// Suspended, without running pods.
fn is_idle(job: &Tree) -> bool {
    let started = !job.str("status.startTime").is_empty();
    let active = job.int("status.active").unwrap_or(0);
    job.bool("spec.suspend") && (!started || is_true(job, "Suspended")) && active == 0
}

/// The template without scheduling fields and resources.
fn without_placement(template: &Tree) -> Tree {
    let mut template = template.clone();
    for path in [
        "metadata.annotations",
        "metadata.labels",
        "spec.nodeSelector",
        "spec.tolerations",
        "spec.schedulingGates",
        "spec.affinity.nodeAffinity",
    ] {
        template.remove_at(path);
    }
    if template.at("spec.affinity").as_map().is_some_and(api::Map::is_empty) {
        template.remove_at("spec.affinity");
    }
    for list in ["spec.containers", "spec.initContainers"] {
        for container in template.list_mut(list) {
            container.remove("resources");
        }
    }
    template
}

fn failure_policy_value(policy: &Tree) -> Value {
    if policy.is_null() {
        return gojson::null();
    }
    const CODES: &[GoField] = &[
        field("containerName", "ContainerName", NULL),
        field("operator", "Operator", gojson::EMPTY),
        field("values", "Values", NULL),
    ];
    const PATTERN: &[GoField] = &[field("type", "Type", gojson::EMPTY), field("status", "Status", gojson::EMPTY)];
    let rule = |rule: &Tree| {
        let codes = rule.at("onExitCodes");
        let codes = if codes.is_null() { NULL.to_string() } else { gojson::text(codes, CODES) };
        let patterns: Vec<String> =
            rule.list("onPodConditions").iter().map(|pattern| gojson::text(pattern, PATTERN)).collect();
        let patterns = if patterns.is_empty() { NULL.to_string() } else { format!("[{}]", patterns.join(",")) };
        format!(r#"{{"Action":"{}","OnExitCodes":{codes},"OnPodConditions":{patterns}}}"#, rule.str("action"))
    };
    let rules: Vec<String> = policy.list("rules").iter().map(rule).collect();
    Value::raw(format!("{{\"Rules\":[{}]}}", rules.join(",")))
}

pub(super) fn warnings(job: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings: Vec<String> = match old {
        None => workload::name_warning(job).into_iter().collect(),
        Some(_) => Vec::new(),
    };
    if old.is_none_or(|old| old.at("spec") != job.at("spec")) {
        warnings.extend(spec_warnings(job.at("spec"), &Path::root("spec")));
    }
    warnings
}

/// Warnings for the spec of a Job, in a Job or in a template.
pub(crate) fn spec_warnings(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let above = |key: &str, limit: i64| spec.int(key).is_some_and(|number| number > limit);
    if spec.str("completionMode") == "Indexed"
        && above("completions", MANY_COMPLETIONS)
        && above("parallelism", LIMIT_FOR_MANY)
    {
        let text = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
        warnings.push(format!("{path}: {text}"));
    }
    warnings.extend(podspec::template_warnings(spec.at("template"), &path.field("template")));
    warnings
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;
    use crate::kind::{Context, User};

    fn job(change: impl Fn(&mut Tree)) -> Tree {
        let containers = list![tree! { "name" => "c", "image" => "i" }];
        let template = tree! { "spec" => tree! { "containers" => containers, "restartPolicy" => "Never" } };
        let mut job = tree! {
            "metadata" => tree! { "name" => "j", "uid" => "u" },
            "spec" => tree! { "template" => template },
        };
        change(job.child("spec"));
        (KIND.set_defaults)(&mut job);
        let user = User::default();
        (KIND.prepare_create)(&mut job, &Context { now: 0, user: &user });
        job
    }

    fn check(change: impl Fn(&mut Tree), want: &[&str]) {
        let mut errors = Errors::new();
        validate(&job(change), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn suspended_job_templates_may_change_partly() {
        let suspended = |change: fn(&mut Tree)| {
            job(|spec| {
                spec.set("suspend", true);
                change(spec.child("template.spec"));
            })
        };
        let check = |old: &Tree, new: &Tree, want: &[&str]| {
            let mut errors = Errors::new();
            validate_update(new, old, &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), want);
        };
        let old = suspended(|_| {});
        let placed = suspended(|spec| spec.set("nodeSelector", tree! { "a" => "b" }));
        let renamed = suspended(|spec| spec.list_mut("containers")[0].set("image", "other"));
        check(&old, &placed, &[]);
        check(&old, &renamed, &["spec.template.spec"]);
        let mut active = old.clone();
        active.child("status").set("active", 1);
        check(&active, &placed, &["spec.template"]);
    }

    #[test]
    fn indexed_job_names_are_limited() {
        let indexed = |completions: i64| {
            let mut job = job(|spec| {
                spec.set("completionMode", "Indexed");
                spec.set("completions", completions);
                spec.set("parallelism", completions);
            });
            job.child("metadata").set("name", "a".repeat(61));
            job
        };
        let mut errors = Errors::new();
        validate_update(&indexed(11), &indexed(10), &mut errors);
        let name = "a".repeat(61);
        let text = format!(
            "metadata.name: Invalid value: \"{name}\": will not able to create pod with invalid DNS label: {name}-10"
        );
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    }

    #[test]
    fn specs() {
        check(|_| {}, &[]);
        check(
            |spec| spec.set("maxFailedIndexes", 1),
            &[
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
            ],
        );
        check(
            |spec| spec.child("template.spec").set("restartPolicy", "Always"),
            &["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
        );
        check(
            |spec| spec.set("successPolicy", tree! { "rules" => list![tree! {}] }),
            &[
                r#"spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":null}]}: requires indexed completion mode"#,
            ],
        );
    }

    #[test]
    fn suspended_jobs_may_change_scheduling() {
        let suspended = job(|spec| spec.set("suspend", true));
        let placed = job(|spec| {
            spec.set("suspend", true);
            spec.child("template.spec").set("nodeSelector", tree! { "a" => "b" });
        });
        let mut errors = Errors::new();
        validate_update(&placed, &suspended, &mut errors);
        assert!(errors.is_empty());
        validate_update(&placed, &job(|_| {}), &mut errors);
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["spec.template"]);
    }
}
