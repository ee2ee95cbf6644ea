//! Validation of a Job's status. Most rules only apply if the update changes the relevant fields: a status written by
//! an older server can still be completed.

use std::collections::BTreeSet;

use api::Tree;
use api::field::{Errors, Path, Value};

use super::{indexes, is_true};
use crate::checks;

const STATUS: Path<'static> = Path::root("status");

/// The changes of this write.
struct Changes<'a> {
    job: &'a Tree,
    old: &'a Tree,
}

impl Changes<'_> {
    fn field(&self, key: &str) -> bool {
        self.job.at("status").at(key) != self.old.at("status").at(key)
    }

    fn condition(&self, kind: &str) -> bool {
        is_true(self.job, kind) != is_true(self.old, kind)
    }

    fn finished(&self) -> bool {
        is_finished(self.job) != is_finished(self.old)
    }
}

fn is_finished(job: &Tree) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

pub(super) fn validate(job: &Tree, old: &Tree, errors: &mut Errors) {
    let changes = Changes { job, old };
    checks::all_non_negative(
        job.at("status"),
        &["active", "succeeded", "failed", "ready", "terminating"],
        &STATUS,
        errors,
    );
    validate_uncounted(job, errors);
    validate_conditions(&changes, errors);
    validate_times(&changes, errors);
    validate_counts(&changes, errors);
    validate_indexes(&changes, errors);
    validate_success(job, errors);
    validate_changes(&changes, errors);
}

/// Upstream omits the value in errors about conditions.
fn conditions(text: &str, errors: &mut Errors) {
    errors.invalid(&STATUS.field("conditions"), Value::raw(text), "");
}

fn validate_uncounted(job: &Tree, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let uncounted = STATUS.field("uncountedTerminatedPods");
    for key in ["succeeded", "failed"] {
        let path = uncounted.field(key);
        for (index, uid) in job.at("status.uncountedTerminatedPods").list(key).iter().enumerate() {
            let uid = uid.as_str().unwrap_or("");
            if uid.is_empty() {
                errors.invalid(&path.index(index), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path.index(index), uid);
            }
        }
    }
}

fn validate_conditions(changes: &Changes<'_>, errors: &mut Errors) {
    let has = |kind: &str| is_true(changes.job, kind);
    let (complete, failed) = (changes.condition("Complete"), changes.condition("Failed"));
    if (complete || failed) && has("Complete") && has("Failed") {
        conditions("cannot set Complete=True and Failed=true conditions", errors);
    }
    if (complete || changes.condition("FailureTarget")) && has("Complete") && has("FailureTarget") {
        conditions("cannot set Complete=True and FailureTarget=true conditions", errors);
    }
    if (failed || changes.field("failedIndexes")) && has("Failed") && !has("FailureTarget") {
        conditions("cannot set Failed=True condition without the FailureTarget=true condition", errors);
    }
    if (complete || changes.condition("SuccessCriteriaMet")) && has("Complete") && !has("SuccessCriteriaMet") {
        conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition", errors);
    }
}

fn validate_times(changes: &Changes<'_>, errors: &mut Errors) {
    let status = changes.job.at("status");
    let complete = is_true(changes.job, "Complete");
    let (start, end) = (status.str("startTime"), status.str("completionTime"));
    let path = STATUS.field("completionTime");
    if changes.condition("Complete") || changes.field("completionTime") {
        if !end.is_empty() && !complete {
            errors.invalid(&path, end, "cannot set completionTime when there is no Complete=True condition");
        }
        if end.is_empty() && complete {
            errors.required(&path, "completionTime is required for Complete jobs");
        }
    }
    // Times have one format here, which sorts chronologically.
    let moved = changes.field("startTime") || changes.field("completionTime");
    if moved && !start.is_empty() && !end.is_empty() && end < start {
        errors.invalid(&path, end, "completionTime cannot be set before startTime");
    }
    if (changes.finished() || changes.field("startTime")) && start.is_empty() && is_finished(changes.job) {
        errors.required(&STATUS.field("startTime"), "startTime is required for finished job");
    }
}

fn validate_counts(changes: &Changes<'_>, errors: &mut Errors) {
    let status = changes.job.at("status");
    let count = |key: &str| status.int(key).unwrap_or(0);
    let finished = is_finished(changes.job);
    for key in ["active", "terminating"] {
        if (changes.finished() || changes.field(key)) && finished && count(key) > 0 {
            errors.invalid(&STATUS.field(key), count(key), &format!("{key}>0 is invalid for finished job"));
        }
    }
    let uncounted = status.at("uncountedTerminatedPods");
    let some = !uncounted.list("succeeded").is_empty() || !uncounted.list("failed").is_empty();
    if (changes.finished() || changes.field("uncountedTerminatedPods")) && finished && some {
        let path = STATUS.field("uncountedTerminatedPods");
        errors.invalid(&path, uncounted, "uncountedTerminatedPods needs to be empty for finished job");
    }
    if (changes.field("ready") || changes.field("active")) && count("ready") > count("active") {
        errors.invalid(&STATUS.field("ready"), count("ready"), "cannot set more ready pods than active");
    }
}

fn validate_indexes(changes: &Changes<'_>, errors: &mut Errors) {
    let (spec, status) = (changes.job.at("spec"), changes.job.at("status"));
    let (completed, failed) = (status.str("completedIndexes"), status.at("failedIndexes").as_str());
    let (completed_changed, failed_changed) = (changes.field("completedIndexes"), changes.field("failedIndexes"));
    let path = |key| STATUS.field(key).to_string();
    let (completed_path, failed_path) = (path("completedIndexes"), path("failedIndexes"));
    let (completed_path, failed_path) = (Path::root(&completed_path), Path::root(&failed_path));
    let parsed = |key: &str, text: &str, path: &Path<'_>, errors: &mut Errors| {
        let count = spec.int("completions").map(|completions| indexes::count(text, completions));
        if let Some(Err(error)) = count {
            errors.invalid(path, text, &format!("error parsing {key}: {error}"));
        }
    };
    if completed_changed {
        parsed("completedIndexes", completed, &completed_path, errors);
    }
    if let Some(failed) = failed.filter(|_| failed_changed && spec.has("backoffLimitPerIndex")) {
        parsed("failedIndexes", failed, &failed_path, errors);
    }
    if completed_changed && !completed.is_empty() && spec.str("completionMode") != "Indexed" {
        let text = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&completed_path, completed, text);
    }
    let Some(failed) = failed else { return };
    if failed_changed && !spec.has("backoffLimitPerIndex") {
        let text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&failed_path, failed, text);
    }
    let overlap = spec.int("completions").and_then(|number| indexes::overlap(completed, failed, number));
    if let Some(index) = overlap.filter(|_| completed_changed || failed_changed) {
        let text = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&failed_path, failed, &text);
    }
}

fn validate_success(job: &Tree, errors: &mut Errors) {
    let met = is_true(job, "SuccessCriteriaMet");
    if met && is_true(job, "Failed") {
        conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions", errors);
    }
    if met && is_true(job, "FailureTarget") {
        conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errors);
    }
    if !met && job.at("spec").has("successPolicy") && is_true(job, "Complete") {
        let text = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        conditions(text, errors);
    }
}

/// Counts and final states must not be reverted.
fn validate_changes(changes: &Changes<'_>, errors: &mut Errors) {
    let (job, old) = (changes.job, changes.old);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(job, kind) {
            conditions(&format!("cannot disable the terminal {kind}=True condition"), errors);
        }
    }
    let spec = job.at("spec");
    // An indexed job may be scaled down.
    let elastic = spec.str("completionMode") == "Indexed" && spec.int("completions") == spec.int("parallelism");
    for key in ["failed", "succeeded"].into_iter().filter(|key| *key == "failed" || !elastic) {
        let count = |job: &Tree| job.at("status").int(key).unwrap_or(0);
        if count(job) < count(old) {
            errors.invalid(&STATUS.field(key), count(job), &format!("cannot decrease the {key} counter"));
        }
    }
    let (end, old_end) = (job.str("status.completionTime"), old.str("status.completionTime"));
    if !end.is_empty() && !old_end.is_empty() && end != old_end {
        errors.invalid(&STATUS.field("completionTime"), end, "completionTime cannot be mutated");
    }
    let started = !old.str("status.startTime").is_empty();
    if started && changes.field("startTime") && !spec.bool("suspend") {
        let text = "startTime cannot be removed for unsuspended job";
        errors.required(&STATUS.field("startTime"), text);
    }
    let (met, was_met) = (is_true(job, "SuccessCriteriaMet"), is_true(old, "SuccessCriteriaMet"));
    if was_met && !met {
        conditions("cannot disable the SuccessCriteriaMet=True condition", errors);
    }
    if met && !was_met && is_true(old, "Complete") {
        let text = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        conditions(text, errors);
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn job(status: Tree) -> Tree {
        tree! { "spec" => tree! { "completions" => 3, "parallelism" => 1 }, "status" => status }
    }

    fn check(status: Tree, old: Tree, want: &[&str]) {
        let mut errors = Errors::new();
        validate(&job(status), &job(old), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    fn conditions_of(kinds: &[&str]) -> Tree {
        Tree::List(kinds.iter().map(|kind| tree! { "type" => *kind, "status" => "True" }).collect())
    }

    #[test]
    fn complete_jobs_have_times_and_criteria() {
        let (start, end) = ("2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z");
        let complete = conditions_of(&["Complete", "SuccessCriteriaMet"]);
        let status = tree! { "conditions" => complete, "startTime" => start, "completionTime" => end };
        check(status.clone(), tree! { "startTime" => start }, &[]);
        check(
            tree! { "conditions" => conditions_of(&["Complete"]) },
            tree! {},
            &[
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        );
        check(
            tree! { "startTime" => start },
            status,
            &[
                "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
                "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
            ],
        );
    }

    #[test]
    fn counters_do_not_decrease() {
        check(
            tree! { "failed" => 1, "ready" => 2, "active" => 1 },
            tree! { "failed" => 2 },
            &[
                "status.ready: Invalid value: 2: cannot set more ready pods than active",
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
            ],
        );
        let uncounted = tree! { "succeeded" => list!["a"], "failed" => list!["a"] };
        check(
            tree! { "uncountedTerminatedPods" => uncounted },
            tree! {},
            &["status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\""],
        );
    }
}
