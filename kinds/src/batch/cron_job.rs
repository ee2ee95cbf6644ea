//! CronJob.

use api::Tree;
use api::field::{Errors, Path};

use super::{cron, job};
use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, column};
use crate::workload::{self, SPEC};
use crate::{cells, checks, podspec, prepare, strategy, time_zones};

/// Jobs are named after their CronJob and a time of 11 characters.
const NAME_MAX: usize = 52;

pub(crate) static KIND: Kind = Kind {
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    set_defaults,
    prepare_create,
    prepare_update,
    validate,
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: prepare::any_status, reset: &["spec"] }),
    columns: &[
        column("Name", "string", "name", 0),
        column("Schedule", "string", "", 0),
        column("Timezone", "string", "", 0),
        column("Suspend", "boolean", "", 0),
        column("Active", "integer", "", 0),
        column("Last Schedule", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    cells: row,
    ..Kind::namespaced("batch", "v1", "CronJob", "cronjobs", "cronjob")
};

fn set_defaults(cron_job: &mut Tree) {
    let spec = cron_job.child("spec");
    if spec.str("concurrencyPolicy").is_empty() {
        spec.set("concurrencyPolicy", "Allow");
    }
    spec.set_default("suspend", false);
    spec.set_default("successfulJobsHistoryLimit", 3);
    spec.set_default("failedJobsHistoryLimit", 1);
    let job = spec.child("jobTemplate.spec");
    job::set_failure_policy_defaults(job);
    podspec::set_template_defaults(job.child("template"));
}

fn prepare_create(cron_job: &mut Tree, context: &Context<'_>) {
    drop_disabled(cron_job, &Tree::Null);
    strategy::create(cron_job, context);
}

fn prepare_update(cron_job: &mut Tree, old: &Tree, context: &Context<'_>) {
    drop_disabled(cron_job, old);
    strategy::update(cron_job, old, context);
}

fn drop_disabled(cron_job: &mut Tree, old: &Tree) {
    const TEMPLATE: &str = "spec.jobTemplate.spec.template";
    if let Some(template) = cron_job.at_mut(TEMPLATE) {
        podspec::drop_disabled_template(template, old.at(TEMPLATE));
    }
}

fn validate(cron_job: &Tree, errors: &mut Errors) {
    validate_spec(cron_job.at("spec"), &Tree::Null, errors);
    let name = cron_job.str("metadata.name");
    if name.len() > NAME_MAX {
        let metadata = Path::root("metadata");
        errors.invalid(&metadata.field("name"), name, "must be no more than 52 characters");
    }
}

/// Stored names that are too long may stay.
fn validate_update(cron_job: &Tree, old: &Tree, errors: &mut Errors) {
    validate_spec(cron_job.at("spec"), old.at("spec"), errors);
}

fn validate_spec(spec: &Tree, old: &Tree, errors: &mut Errors) {
    match spec.str("schedule") {
        "" => errors.required(&SPEC.field("schedule"), ""),
        _ => validate_schedule(spec, old, errors),
    }
    checks::non_negative(spec, "startingDeadlineSeconds", &SPEC, errors);
    if old.is_null() || old.at("timeZone") != spec.at("timeZone") {
        validate_time_zone(spec.at("timeZone"), &SPEC.field("timeZone"), errors);
    }
    match spec.str("concurrencyPolicy") {
        "" => errors.required(&SPEC.field("concurrencyPolicy"), ""),
        "Allow" | "Forbid" | "Replace" => {}
        other => {
            let supported = ["Allow", "Forbid", "Replace"];
            errors.not_supported(&SPEC.field("concurrencyPolicy"), other, &supported);
        }
    }
    validate_job_template(spec.at("jobTemplate"), &SPEC.field("jobTemplate"), errors);
    checks::all_non_negative(spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &SPEC, errors);
}

/// A time zone in the schedule is only allowed if it is already stored.
fn validate_schedule(spec: &Tree, old: &Tree, errors: &mut Errors) {
    let (schedule, path) = (spec.str("schedule"), SPEC.field("schedule"));
    if let Err(error) = cron::parse(schedule) {
        errors.invalid(&path, schedule, &error.to_string());
    }
    let allowed = old.str("schedule").contains("TZ");
    match (schedule.contains("TZ"), allowed) {
        (true, false) => {
            let text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.invalid(&path, schedule, text);
        }
        (true, true) if spec.has("timeZone") => {
            errors.invalid(&path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
        _ => {}
    }
}

fn validate_time_zone(zone: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(zone) = zone.as_str() else { return };
    if zone.is_empty() {
        return errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    }
    if zone.eq_ignore_ascii_case("Local") {
        let text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, text);
    }
    if zone != "Local" && !time_zones::is_zone(zone) {
        errors.invalid(path, zone, &format!("unknown time zone {zone}"));
    }
}

/// The selector of each Job is generated with the Job.
fn validate_job_template(template: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (spec, path) = (template.at("spec"), path.field("spec"));
    job::validate_spec(spec, &path, errors);
    if spec.has("selector") {
        let value = checks::shown(&KIND, "spec.jobTemplate.spec.selector", spec.at("selector"));
        errors.invalid(&path.field("selector"), value, "`selector` will be auto-generated");
    }
    if spec.bool("manualSelector") {
        errors.not_supported(&path.field("manualSelector"), true, &["nil", "false"]);
    }
}

fn warnings(cron_job: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() {
        warnings.extend(workload::name_warning(cron_job));
    }
    if old.is_none_or(|old| old.at("spec") != cron_job.at("spec")) {
        let path = SPEC.field("jobTemplate");
        warnings.extend(job::spec_warnings(cron_job.at("spec.jobTemplate.spec"), &path.field("spec")));
    }
    if old.is_some() && cron_job.str("spec.schedule").contains("TZ") {
        // The doubled `spec` is upstream's.
        let text = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        warnings.push(text.to_string());
    }
    warnings
}

fn row(cron_job: &Tree, now: i64) -> Vec<Tree> {
    let suspend = match cron_job.at("spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match cron_job.str("status.lastScheduleTime") {
        "" => Tree::from("<none>"),
        time => cells::since(time, now),
    };
    let mut row = vec![
        cells::name(cron_job),
        Tree::from(cron_job.str("spec.schedule")),
        cells::text_or(cron_job, "spec.timeZone", "<none>"),
        Tree::from(suspend),
        Tree::from(cron_job.list("status.active").len() as i64),
        last,
        cells::age(cron_job, now),
    ];
    let job = cron_job.at("spec.jobTemplate.spec");
    row.extend(workload::container_cells(job.at("template"), cells::label_selector(job.at("selector"))));
    row
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn time_zones_belong_outside_the_schedule() {
        let cases = [
            (tree! { "schedule" => "@hourly" }, Tree::Null, ""),
            (
                tree! { "schedule" => "TZ=UTC @hourly" },
                Tree::Null,
                "spec.schedule: Invalid value: \"TZ=UTC @hourly\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ),
            (tree! { "schedule" => "TZ=UTC @hourly" }, tree! { "schedule" => "TZ=UTC @daily" }, ""),
            (
                tree! { "schedule" => "TZ=UTC @hourly", "timeZone" => "UTC" },
                tree! { "schedule" => "TZ=UTC @daily" },
                "spec.schedule: Invalid value: \"TZ=UTC @hourly\": cannot use both timeZone field and TZ or CRON_TZ in schedule",
            ),
        ];
        for (spec, old, want) in cases {
            let mut errors = Errors::new();
            validate_schedule(&spec, &old, &mut errors);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(text, want);
        }
    }
}
