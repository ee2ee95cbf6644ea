//! The backoff before a failed pod is replaced: 10 s, doubled with every further failure without a success in
//! between, up to 10 min.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::time::{self, Timestamp};
use stdx::backoff::pause_after;

use crate::support::clock::until;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The failures of a job since its last success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    /// Since the last success.
    pub failures: u32,
    pub last_failure: i64,
}

impl Backoff {
    /// Adds pods that finished; failures before a success are dropped.
    pub(super) fn after(self, succeeded: &[Arc<Tree>], failed: &[Arc<Tree>]) -> Backoff {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let mut times: Vec<i64> = failed.iter().map(|pod| finished_at(pod)).collect();
        let before = if last_success.is_some() { Backoff::default() } else { self };
        times.retain(|time| last_success.is_none_or(|success| *time > success));
        let Some(last) = times.iter().max() else { return before };
        Backoff { failures: before.failures + times.len() as u32, last_failure: *last }
    }

    /// None once the backoff is over.
    pub(super) fn remaining(self, now: Timestamp) -> Option<Duration> {
        if self.failures == 0 {
            return None;
        }
        let pause = pause_after(self.failures, FIRST, LONGEST);
        until(now, self.last_failure + pause.as_secs() as i64)
    }
}

/// When a pod finished: by its containers, by when it stopped being ready, or by its deletion; otherwise its creation
/// time.
pub(super) fn finished_at(pod: &Tree) -> i64 {
    let created = || seconds(pod.str("metadata.creationTimestamp"));
    by_containers(pod).or_else(|| by_readiness(pod)).or_else(|| by_deletion(pod)).or_else(created).unwrap_or(0)
}

fn seconds(text: &str) -> Option<i64> {
    time::parse(text).ok().map(|time| time.seconds)
}

/// Sidecars end after the containers that they serve, so they are included.
fn by_containers(pod: &Tree) -> Option<i64> {
    let sidecars =
        pod.list("spec.initContainers").iter().filter(|container| container.str("restartPolicy") == "Always");
    let sidecars: Vec<&str> = sidecars.map(|container| container.str("name")).collect();
    let init = pod.list("status.initContainerStatuses").iter();
    let statuses = pod.list("status.containerStatuses").iter();
    let all = statuses.chain(init.filter(|status| sidecars.contains(&status.str("name"))));
    let ends: Option<Vec<i64>> = all.map(|status| seconds(status.str("state.terminated.finishedAt"))).collect();
    ends?.into_iter().max()
}

fn by_readiness(pod: &Tree) -> Option<i64> {
    let is_unready = |condition: &&Tree| condition.str("type") == "Ready" && condition.str("status") == "False";
    pod.list("status.conditions").iter().find(is_unready).and_then(|ready| seconds(ready.str("lastTransitionTime")))
}

fn by_deletion(pod: &Tree) -> Option<i64> {
    let deleted = seconds(pod.str("metadata.deletionTimestamp"))?;
    Some(deleted - pod.int("metadata.deletionGracePeriodSeconds").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    fn pod(json: &str) -> Arc<Tree> {
        Arc::new(decode(json.as_bytes()).expect("a pod"))
    }

    fn ended(second: i64) -> Arc<Tree> {
        let time = time::format_seconds(second);
        pod(&format!(
            r#"{{"status":{{"containerStatuses":[{{"state":{{"terminated":{{"finishedAt":"{time}"}}}}}}]}}}}"#
        ))
    }

    #[test]
    fn finds_the_finish_time() {
        let check = |json: &str, want: i64| assert_eq!(finished_at(&pod(json)), want, "{json}");
        let made = r#""metadata":{"creationTimestamp":"1970-01-01T00:00:01Z"}"#;
        check(&format!("{{{made}}}"), 1);
        check(r#"{"metadata":{"deletionTimestamp":"1970-01-01T00:01:00Z","deletionGracePeriodSeconds":30}}"#, 30);
        check(
            r#"{"status":{"conditions":[{"type":"Ready","status":"False","lastTransitionTime":"1970-01-01T00:00:05Z"}]}}"#,
            5,
        );
        check(&format!(r#"{{{made},"status":{{"containerStatuses":[{{"state":{{"running":{{}}}}}}]}}}}"#), 1);
        assert_eq!(finished_at(&ended(7)), 7);
    }

    #[test]
    fn failures_accumulate_until_a_success() {
        let check = |start: (u32, i64), succeeded: &[i64], failed: &[i64], want: (u32, i64)| {
            let pods = |times: &[i64]| times.iter().map(|time| ended(*time)).collect::<Vec<_>>();
            let start = Backoff { failures: start.0, last_failure: start.1 };
            let found = start.after(&pods(succeeded), &pods(failed));
            assert_eq!((found.failures, found.last_failure), want);
        };
        check((0, 0), &[], &[], (0, 0));
        check((2, 5), &[], &[], (2, 5));
        check((2, 5), &[], &[9, 8], (4, 9));
        check((2, 5), &[9], &[], (0, 0));
        check((2, 5), &[9], &[8, 10, 11], (2, 11));
    }

    #[test]
    fn backoff_doubles() {
        let check = |failures: u32, now: i64, want: Option<u64>| {
            let now = Timestamp { seconds: now, nanos: 0 };
            let found = Backoff { failures, last_failure: 100 }.remaining(now);
            assert_eq!(found, want.map(Duration::from_secs), "{failures} {now:?}");
        };
        check(0, 100, None);
        check(1, 100, Some(10));
        check(1, 104, Some(6));
        check(1, 110, None);
        check(3, 100, Some(40));
        check(6, 100, Some(320));
        check(7, 100, Some(600));
        check(60, 100, Some(600));
    }
}
