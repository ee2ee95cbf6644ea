//! A finished job is kept for `ttlSecondsAfterFinished`.

use std::time::Duration;

use api::Tree;
use api::time::{self, Timestamp};

use crate::support::clock::until;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    /// The TTL is not over.
    Wait(Duration),
    Delete,
}

pub(super) fn plan(job: &Tree, now: Timestamp) -> Plan {
    let Some(ttl) = job.int("spec.ttlSecondsAfterFinished") else { return Plan::Keep };
    let Some(finished) = finished_at(job).filter(|_| !job.at("metadata").has("deletionTimestamp")) else {
        return Plan::Keep;
    };
    match until(now, finished.saturating_add(ttl)) {
        Some(left) => Plan::Wait(left),
        None => Plan::Delete,
    }
}

/// Seconds since the TTL has expired.
pub(super) fn overdue(job: &Tree, now: Timestamp) -> f64 {
    let end = finished_at(job).unwrap_or_default() + job.int("spec.ttlSecondsAfterFinished").unwrap_or_default();
    (now.seconds.saturating_sub(end)).max(0) as f64
}

fn finished_at(job: &Tree) -> Option<i64> {
    let is_end =
        |condition: &&Tree| matches!(condition.str("type"), "Complete" | "Failed") && condition.str("status") == "True";
    let condition = job.list("status.conditions").iter().find(is_end)?;
    Some(time::parse(condition.str("lastTransitionTime")).ok()?.seconds)
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn deletes_finished_jobs_after_ttl() {
        let check = |ttl: &str, condition: &str, now: i64, want: Plan| {
            let condition =
                format!(r#"{{"type":"{condition}","status":"True","lastTransitionTime":"1970-01-01T00:00:10Z"}}"#);
            let json = format!(r#"{{"spec":{{{ttl}}},"status":{{"conditions":[{condition}]}}}}"#);
            let job = decode(json.as_bytes()).expect("a job");
            assert_eq!(plan(&job, Timestamp { seconds: now, nanos: 0 }), want, "{json}");
        };
        let ttl = r#""ttlSecondsAfterFinished":5"#;
        check(ttl, "Complete", 11, Plan::Wait(Duration::from_secs(4)));
        check(ttl, "Failed", 15, Plan::Delete);
        check(ttl, "FailureTarget", 15, Plan::Keep);
        check("", "Complete", 15, Plan::Keep);
        check(r#""ttlSecondsAfterFinished":0"#, "Complete", 10, Plan::Delete);
    }
}
