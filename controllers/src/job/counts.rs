//! What is counted of jobs, from what they were and what they become.

use api::Tree;
use client::{Meter, Metrics};

use super::indexes::Indexes;
use super::plan::{Act, Decision};
use super::view::{Job, is_tracked};
use crate::meters;

pub fn mode(job: &Tree) -> &'static str {
    if Job(job).is_indexed() { "Indexed" } else { "NonIndexed" }
}

pub fn action(act: &Act) -> &'static str {
    match act {
        Act::Nothing => "tracking",
        Act::Create(_) => "pods_created",
        Act::Remove(_) | Act::End(_) => "pods_deleted",
    }
}

/// Whether an ended pod that is tracked has come or gone.
pub fn tracked(old: Option<&Tree>, new: Option<&Tree>) -> Option<&'static str> {
    let is_so = |pod: &Tree| is_tracked(pod) && matches!(pod.str("status.phase"), "Succeeded" | "Failed");
    match (old.is_some_and(is_so), new.is_some_and(is_so)) {
        (false, true) => Some("add"),
        (true, false) => Some("delete"),
        _ => None,
    }
}

/// Pods that were made, by what they stand for.
pub fn made(metrics: &Metrics, job: &Tree, decision: &Decision, made: usize, has_failed: bool) {
    let counts = decision.counts;
    let reason = match job.str("spec.podReplacementPolicy") {
        "Failed" if counts.failed > 0 => "recreate_failed",
        _ if counts.failed > 0 || counts.terminating > 0 => "recreate_terminating_or_failed",
        _ => "new",
    };
    if made > 0 {
        metrics.record(&meters::JOB_PODS_CREATION, &[reason, "succeeded"], made as f64);
    }
    if has_failed {
        metrics.count(&meters::JOB_PODS_CREATION, &[reason, "failed"]);
    }
}

type Count<'a> = (&'static Meter, Vec<&'a str>, f64);

/// What a new status of a job says more than the one before.
pub fn ended<'a>(job: &Tree, status: &'a Tree) -> Vec<Count<'a>> {
    let old = job.at("status");
    let mode = mode(job);
    let mut counts: Vec<Count<'a>> = Vec::new();
    for result in ["succeeded", "failed"] {
        let more = status.int(result).unwrap_or(0) - old.int(result).unwrap_or(0);
        counts.push((&meters::JOB_PODS_FINISHED, vec![mode, result], more as f64));
    }
    if Job(job).is_indexed() {
        let limit = if job.at("spec").has("backoffLimitPerIndex") { "perIndex" } else { "global" };
        let number = |status: &Tree, field: &str| {
            Indexes::parse(status.str(field), Job(job).completions().unwrap_or(0)).len() as f64
        };
        for (result, field) in [("succeeded", "completedIndexes"), ("failed", "failedIndexes")] {
            let more = number(status, field) - number(old, field);
            counts.push((&meters::JOB_FINISHED_INDEXES, vec![result, limit], more));
        }
    }
    let is_end = |condition: &&Tree, kind: &str| condition.str("type") == kind && condition.str("status") == "True";
    for (result, kind) in [("succeeded", "Complete"), ("failed", "Failed")] {
        let was = old.list("conditions").iter().any(|one| is_end(&one, kind));
        let is = status.list("conditions").iter().find(|one| is_end(one, kind));
        if let Some(condition) = is.filter(|_| !was) {
            counts.push((&meters::JOBS_FINISHED, vec![mode, result, condition.str("reason")], 1.0));
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
    fn what_a_status_says_more_is_counted() {
        let check = |spec: &str, old: &str, new: &str, want: &[(&str, &str, f64)]| {
            let job = decode(format!(r#"{{"spec":{{{spec}}},"status":{{{old}}}}}"#).as_bytes()).expect("a job");
            let status = decode(format!("{{{new}}}").as_bytes()).expect("a status");
            let found = ended(&job, &status);
            let found: Vec<_> =
                found.iter().map(|(meter, labels, count)| (meter.name, labels.join(" "), *count)).collect();
            let want: Vec<_> = want.iter().map(|(name, labels, count)| (*name, labels.to_string(), *count)).collect();
            assert_eq!(found, want, "{old} {new}");
        };
        let pods = meters::JOB_PODS_FINISHED.name;
        let indexes = meters::JOB_FINISHED_INDEXES.name;
        let jobs = meters::JOBS_FINISHED.name;
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
    fn ended_pods_are_counted_when_they_come_and_go() {
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
