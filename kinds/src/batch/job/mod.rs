//! Job.

mod indexes;
mod policies;
mod prepare;
mod status;
mod validate;

use api::{Str, Tree};

pub(super) use prepare::set_failure_policy_defaults;
pub(super) use validate::{spec_warnings, validate_spec};

use crate::kind::{Kind, Lifecycle, Selectable, StatusRules, Subresource, Verb, column};
use crate::{cells, strategy, workload};

/// Job.
pub static KIND: Kind = Kind {
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    set_defaults: prepare::set_defaults,
    prepare_create: prepare::prepare_create,
    prepare_update: prepare::prepare_update,
    validate: validate::validate,
    validate_update: validate::validate_update,
    warnings: validate::warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: status::validate, reset: &["spec"] }),
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Completions", "string", "", 0),
        column("Duration", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    cells: row,
    selectable: &[Selectable { name: "status.successful", get: successful }],
    lifecycle: Lifecycle {
        orphans_by_default: true,
        deletion_warning: Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        ),
        labels_from: Some("spec.template.metadata.labels"),
        ..Lifecycle::DEFAULT
    },
    ..Kind::namespaced("batch", "v1", "Job", "jobs", "job")
};

/// The selector name differs from the field, and it has a value even if none has succeeded.
fn successful(job: &Tree, _: &'static str) -> Str {
    Str::from(job.int("status.succeeded").unwrap_or(0).to_string())
}

/// Whether a condition of this type is True.
fn is_true(job: &Tree, kind: &str) -> bool {
    let conditions = job.list("status.conditions").iter();
    conditions.into_iter().any(|condition| condition.str("type") == kind && condition.str("status") == "True")
}

fn row(job: &Tree, now: i64) -> Vec<Tree> {
    let mut row = vec![
        cells::name(job),
        Tree::from(state(job)),
        Tree::from(completions(job)),
        Tree::from(duration(job, now)),
        cells::age(job, now),
    ];
    let selector = cells::label_selector(job.at("spec.selector"));
    row.extend(workload::container_cells(job.at("spec.template"), selector));
    row
}

fn state(job: &Tree) -> &'static str {
    match () {
        () if is_true(job, "Complete") => "Complete",
        () if is_true(job, "Failed") => "Failed",
        () if !job.str("metadata.deletionTimestamp").is_empty() => "Terminating",
        () if is_true(job, "Suspended") => "Suspended",
        () if is_true(job, "FailureTarget") => "FailureTarget",
        () if is_true(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Tree) -> String {
    let succeeded = job.int("status.succeeded").unwrap_or(0);
    match (job.int("spec.completions"), job.int("spec.parallelism").unwrap_or(0)) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn duration(job: &Tree, now: i64) -> String {
    let seconds = |path: &str| api::time::parse(job.str(path)).ok().map(|time| time.seconds);
    let Some(start) = seconds("status.startTime") else { return String::new() };
    api::time::human_duration(seconds("status.completionTime").unwrap_or(now) - start)
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn prints_progress() {
        let condition = tree! { "type" => "Complete", "status" => "True" };
        let status = tree! {
            "succeeded" => 2,
            "startTime" => "2024-01-01T00:00:00Z",
            "completionTime" => "2024-01-01T00:01:05Z",
            "conditions" => list![condition],
        };
        let job = tree! { "spec" => tree! { "parallelism" => 3 }, "status" => status };
        assert_eq!(row(&job, 0)[1..4], [Tree::from("Complete"), Tree::from("2/1 of 3"), Tree::from("65s")]);
    }
}
