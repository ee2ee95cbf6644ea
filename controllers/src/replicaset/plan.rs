//! Plans the creations and deletions of a ReplicaSet or ReplicationController, and its status.

use std::sync::Arc;
use std::time::Duration;

use api::selector::Selector;
use api::time::Timestamp;
use api::{Tree, tree};

use super::rank;
use crate::support::{conditions, pods};

/// The maximum number of creations or deletions per sync.
const BURST: usize = 500;
const REPLICA_FAILURE: &str = "ReplicaFailure";

#[derive(Debug, PartialEq)]
pub(super) enum Scale {
    Keep,
    Create(usize),
    Delete(Vec<Arc<Tree>>),
}

/// The active and the terminating pods of a ReplicaSet.
#[derive(Debug, Default, Clone)]
pub(super) struct Pods {
    pub active: Vec<Arc<Tree>>,
    pub terminating: Vec<Arc<Tree>>,
}

impl Pods {
    /// Finished pods are neither.
    pub(super) fn of(all: impl IntoIterator<Item = Arc<Tree>>) -> Pods {
        let (active, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|pod| pods::is_active(pod));
        Pods {
            active,
            terminating: gone.into_iter().filter(|pod| pods::is_terminating(pod) && !pods::is_terminal(pod)).collect(),
        }
    }
}

pub(super) fn scale(
    set: &Tree,
    active: &[Arc<Tree>],
    related: impl FnOnce() -> Vec<Arc<Tree>>,
    now: Timestamp,
) -> Scale {
    let (wanted, there) = (replicas(set), active.len());
    if set.at("metadata").has("deletionTimestamp") || wanted == there {
        Scale::Keep
    } else if there < wanted {
        Scale::Create((wanted - there).min(BURST))
    } else {
        Scale::Delete(rank::to_delete(active, &related(), (there - wanted).min(BURST), now))
    }
}

/// The failed operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScaleFailure {
    Create(String),
    Delete(String),
}

/// The desired status. ReplicationControllers have no `terminatingReplicas`.
pub(super) fn status(
    set: &Tree,
    pods: &Pods,
    failure: Option<&ScaleFailure>,
    counts_terminating: bool,
    now: Timestamp,
) -> Tree {
    let min_ready = set.int("spec.minReadySeconds").unwrap_or_default();
    let template = Selector::from_labels(set.map("spec.template.metadata.labels"));
    let count = |holds: &dyn Fn(&Tree) -> bool| pods.active.iter().filter(|pod| holds(pod)).count() as i64;
    let mut status = tree! { "replicas" => pods.active.len() as i64 };
    set_count(&mut status, "fullyLabeledReplicas", count(&|pod| template.matches_map(pod.map("metadata.labels"))));
    set_count(&mut status, "readyReplicas", count(&|pod| pods::is_ready(pod)));
    set_count(&mut status, "availableReplicas", count(&|pod| pods::is_available(pod, min_ready, now.seconds)));
    if counts_terminating {
        status.set("terminatingReplicas", pods.terminating.len() as i64);
    }
    set_count(&mut status, "observedGeneration", set.int("metadata.generation").unwrap_or_default());
    let conditions = failure_condition(set, failure, now);
    if !conditions.is_empty() {
        status.set("conditions", conditions);
    }
    status
}

/// Adds or removes the ReplicaFailure condition.
fn failure_condition(set: &Tree, failure: Option<&ScaleFailure>, now: Timestamp) -> Vec<Tree> {
    let mut list = set.list("status.conditions").to_vec();
    let is_known = conditions::get(set, REPLICA_FAILURE).is_some();
    match failure {
        Some(_) if is_known => {}
        None => list.retain(|condition| condition.str("type") != REPLICA_FAILURE),
        Some(failure) => {
            let (reason, message) = match failure {
                ScaleFailure::Create(message) => ("FailedCreate", message),
                ScaleFailure::Delete(message) => ("FailedDelete", message),
            };
            list.push(tree! {
                "type" => REPLICA_FAILURE,
                "status" => "True",
                "lastTransitionTime" => api::time::format_seconds(now.seconds),
                "reason" => reason,
                "message" => message,
            });
        }
    }
    list
}

/// When the next ready pod becomes available.
pub(crate) fn next_available(set: &Tree, active: &[Arc<Tree>], now: Timestamp) -> Option<Duration> {
    let min_ready = set.int("spec.minReadySeconds").unwrap_or_default();
    pods::next_available(active, min_ready, now.seconds)
}

pub(super) fn replicas(set: &Tree) -> usize {
    set.int("spec.replicas").and_then(|replicas| usize::try_from(replicas).ok()).unwrap_or_default()
}

/// Zero is omitted.
fn set_count(status: &mut Tree, key: &str, count: i64) {
    if count != 0 {
        status.set(key, count);
    }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

    fn set(replicas: i64) -> Tree {
        let template = tree! { "metadata" => tree! { "labels" => tree! { "app" => "web" } } };
        tree! {
            "metadata" => tree! { "generation" => 2 },
            "spec" => tree! { "replicas" => replicas, "template" => template },
        }
    }

    fn pod(label: &str, ready_since: Option<i64>) -> Arc<Tree> {
        let ready = |since| {
            let since = api::time::format_seconds(since);
            tree! { "type" => "Ready", "status" => "True", "lastTransitionTime" => since }
        };
        let conditions: Vec<Tree> = ready_since.map(ready).into_iter().collect();
        Arc::new(tree! {
            "metadata" => tree! { "labels" => tree! { "app" => label } },
            "status" => tree! { "phase" => "Running", "conditions" => conditions },
        })
    }

    #[test]
    fn creates_missing_and_deletes_surplus_pods() {
        let check = |replicas: i64, there: usize, want: (usize, usize)| {
            let pods: Vec<Arc<Tree>> = (0..there).map(|_| pod("web", None)).collect();
            let got = match scale(&set(replicas), &pods, Vec::new, NOW) {
                Scale::Keep => (0, 0),
                Scale::Create(count) => (count, 0),
                Scale::Delete(pods) => (0, pods.len()),
            };
            assert_eq!(got, want, "{there} of {replicas}");
        };
        check(0, 0, (0, 0));
        check(3, 1, (2, 0));
        check(3, 3, (0, 0));
        check(1, 3, (0, 2));
        check(2000, 10, (BURST, 0));
        check(0, 600, (0, BURST));
        let mut ending = set(3);
        ending.child("metadata").set("deletionTimestamp", "now");
        assert_eq!(scale(&ending, &[], Vec::new, NOW), Scale::Keep);
    }

    #[test]
    fn status_counts_pods() {
        let mut ended = (*pod("web", None)).clone();
        ended.child("status").set("phase", "Failed");
        let mut ending = (*pod("web", Some(0))).clone();
        ending.child("metadata").set("deletionTimestamp", "now");
        let all = [pod("web", Some(0)), pod("other", Some(995)), pod("web", None), Arc::new(ended), Arc::new(ending)];
        let pods = Pods::of(all);
        let mut set = set(3);
        set.child("spec").set("minReadySeconds", 10);
        let status = status(&set, &pods, None, true, NOW);
        let want = tree! {
            "replicas" => 3, "fullyLabeledReplicas" => 2, "readyReplicas" => 2, "availableReplicas" => 1,
            "terminatingReplicas" => 1, "observedGeneration" => 2,
        };
        assert_eq!(status, want);
        assert_eq!(next_available(&set, &pods.active, NOW), Some(Duration::from_secs(5)));
        let status = super::status(&set, &Pods::default(), None, false, NOW);
        assert_eq!(status, tree! { "replicas" => 0, "observedGeneration" => 2 }, "zeros are not written");
    }

    #[test]
    fn failure_condition_is_set_once() {
        let failure = ScaleFailure::Create("quota".to_string());
        let mut set = set(3);
        let first = status(&set, &Pods::default(), Some(&failure), true, NOW);
        let condition = &first.list("conditions")[0];
        assert_eq!((condition.str("reason"), condition.str("message")), ("FailedCreate", "quota"));
        set.set("status", first.clone());
        let other = ScaleFailure::Delete("x".to_string());
        let later = Timestamp { seconds: 2000, nanos: 0 };
        assert_eq!(status(&set, &Pods::default(), Some(&other), true, later), first);
        assert_eq!(status(&set, &Pods::default(), None, true, later).at("conditions"), &Tree::Null);
        set.child("status").set("conditions", list![tree! { "type" => "Other" }]);
        assert_eq!(status(&set, &Pods::default(), None, true, later).list("conditions").len(), 1);
    }
}
