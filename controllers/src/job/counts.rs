//! The metrics of jobs, computed from the old and the new status.

use api::Tree;
use client::{Metric, Metrics};

use super::indexes::Indexes;
use super::plan::{Decision, PodAction};
use super::view::{Job, is_tracked};
use crate::metrics;

pub(super) fn mode(job: &Tree) -> &'static str {
    if Job(job).is_indexed() { "Indexed" } else { "NonIndexed" }
}

pub(super) fn action(act: &PodAction) -> &'static str {
    match act {
        PodAction::Nothing => "tracking",
        PodAction::Create(_) => "pods_created",
        PodAction::Remove(_) | PodAction::End(_) => "pods_deleted",
    }
}

/// Whether a finished pod with the tracking finalizer was added or deleted.
pub(super) fn tracked(old: Option<&Tree>, new: Option<&Tree>) -> Option<&'static str> {
    let is_so = |pod: &Tree| is_tracked(pod) && matches!(pod.str("status.phase"), "Succeeded" | "Failed");
    match (old.is_some_and(is_so), new.is_some_and(is_so)) {
        (false, true) => Some("add"),
        (true, false) => Some("delete"),
        _ => None,
    }
}

/// Counts created pods by reason.
pub(crate) fn count_created(
    metrics: &Metrics,
    job: &Tree,
    decision: &Decision,
    count_created: usize,
    has_failed: bool,
) {
    let counts = decision.counts;
    let reason = match job.str("spec.podReplacementPolicy") {
        "Failed" if counts.failed > 0 => "recreate_failed",
        _ if counts.failed > 0 || counts.terminating > 0 => "recreate_terminating_or_failed",
        _ => "new",
    };
    if count_created > 0 {
        metrics.record(&metrics::JOB_PODS_CREATION, &[reason, "succeeded"], count_created as f64);
    }
    if has_failed {
        metrics.count(&metrics::JOB_PODS_CREATION, &[reason, "failed"]);
    }
}

type MetricIncrement<'a> = (&'static Metric, Vec<&'a str>, f64);

/// The difference between a new status and the previous one.
pub(super) fn status_increments<'a>(job: &Tree, status: &'a Tree) -> Vec<MetricIncrement<'a>> {
    let old = job.at("status");
    let mode = mode(job);
    let mut counts: Vec<MetricIncrement<'a>> = Vec::new();
    for result in ["succeeded", "failed"] {
        let more = status.int(result).unwrap_or(0) - old.int(result).unwrap_or(0);
        counts.push((&metrics::JOB_PODS_FINISHED, vec![mode, result], more as f64));
    }
    if Job(job).is_indexed() {
        let limit = if job.at("spec").has("backoffLimitPerIndex") { "perIndex" } else { "global" };
        let number = |status: &Tree, field: &str| {
            Indexes::parse(status.str(field), Job(job).completions().unwrap_or(0)).len() as f64
        };
        for (result, field) in [("succeeded", "completedIndexes"), ("failed", "failedIndexes")] {
            let more = number(status, field) - number(old, field);
            counts.push((&metrics::JOB_FINISHED_INDEXES, vec![result, limit], more));
        }
    }
    let is_end = |condition: &&Tree, kind: &str| condition.str("type") == kind && condition.str("status") == "True";
    for (result, kind) in [("succeeded", "Complete"), ("failed", "Failed")] {
        let was = old.list("conditions").iter().any(|one| is_end(&one, kind));
        let is = status.list("conditions").iter().find(|one| is_end(one, kind));
        if let Some(condition) = is.filter(|_| !was) {
            counts.push((&metrics::JOBS_FINISHED, vec![mode, result, condition.str("reason")], 1.0));
        }
    }
    counts.retain(|(_, _, count)| *count > 0.0);
    counts
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn counts_status_changes() {
        let check = |spec: &str, old: &str, new: &str, want: &[(&str, &str, f64)]| {
            let job = decode(format!(r#"{{"spec":{{{spec}}},"status":{{{old}}}}}"#).as_bytes()).expect("a job");
            let status = decode(format!("{{{new}}}").as_bytes()).expect("a status");
            let found = status_increments(&job, &status);
            let found: Vec<_> =
                found.iter().map(|(metric, labels, count)| (metric.name, labels.join(" "), *count)).collect();
            let want: Vec<_> = want.iter().map(|(name, labels, count)| (*name, labels.to_string(), *count)).collect();
            assert_eq!(found, want, "{old} {new}");
        };
        let pods = metrics::JOB_PODS_FINISHED.name;
        let indexes = metrics::JOB_FINISHED_INDEXES.name;
        let jobs = metrics::JOBS_FINISHED.name;
        check("", r#""succeeded":1"#, r#""succeeded":1,"active":2"#, &[]);
        check(
            "",
            "",
            r#""succeeded":2,"failed":1"#,
            &[(pods, "NonIndexed succeeded", 2.0), (pods, "NonIndexed failed", 1.0)],
        );
        let complete = r#""conditions":[{"type":"Complete","status":"True","reason":"CompletionsReached"}]"#;
        check("", "", complete, &[(jobs, "NonIndexed succeeded CompletionsReached", 1.0)]);
        check("", complete, complete, &[]);
        check(
            r#""completionMode":"Indexed","completions":9,"backoffLimitPerIndex":1"#,
            r#""completedIndexes":"0""#,
            r#""completedIndexes":"0-3","failedIndexes":"7""#,
            &[(indexes, "succeeded perIndex", 3.0), (indexes, "failed perIndex", 1.0)],
        );
    }

    #[test]
    fn counts_tracked_finished_pods() {
        let pod = |phase: &str, finalizer: &str| {
            let json = format!(r#"{{"metadata":{{"finalizers":["{finalizer}"]}},"status":{{"phase":"{phase}"}}}}"#);
            decode(json.as_bytes()).expect("a pod")
        };
        let finalizer = super::super::view::FINALIZER;
        let (runs, ended, free) = (pod("Running", finalizer), pod("Failed", finalizer), pod("Failed", "other"));
        assert_eq!(tracked(Some(&runs), Some(&ended)), Some("add"));
        assert_eq!(tracked(None, Some(&ended)), Some("add"));
        assert_eq!(tracked(Some(&ended), Some(&free)), Some("delete"));
        assert_eq!(tracked(Some(&ended), None), Some("delete"));
        assert_eq!(tracked(Some(&runs), Some(&runs)), None);
    }
}
