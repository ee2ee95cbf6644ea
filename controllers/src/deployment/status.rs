//! The status of a Deployment.

use std::time::Duration;

use api::time::{self, Timestamp};
use api::{Tree, tree};

use super::state::{DeploymentState, ReplicaSet};
use crate::support::conditions;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const COMPLETE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// Replica counts, observed generation, and the Available condition.
pub(super) fn count(state: &DeploymentState) -> Tree {
    let sum = |field: &str| state.sets.iter().map(|set| status_count(&set.tree, field)).sum::<i64>();
    let available = state.available();
    let updated = state.new_set().map(|set| status_count(&set.tree, "replicas")).unwrap_or_default();
    let mut status = tree! {};
    for (field, value) in [
        ("observedGeneration", state.deployment.int("metadata.generation").unwrap_or_default()),
        ("replicas", sum("replicas")),
        ("updatedReplicas", updated),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (state.total() - available).max(0)),
    ] {
        if value != 0 {
            status.set(field, value);
        }
    }
    if let Some(terminating) = terminating(state) {
        status.set("terminatingReplicas", terminating);
    }
    if let Some(collisions) = state.deployment.int("status.collisionCount") {
        status.set("collisionCount", collisions);
    }
    status.set("conditions", state.deployment.list("status.conditions").to_vec());
    let enough = available >= state.replicas() - state.max_unavailable();
    set(&mut status, availability(enough), state.now);
    status
}

fn availability(enough: bool) -> Condition<'static> {
    if enough {
        Condition::new(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        Condition::new(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    }
}

/// None if a ReplicaSet does not report it; a ReplicaSet to be created has none.
fn terminating(state: &DeploymentState) -> Option<i64> {
    let of = |set: &ReplicaSet| {
        let is_made = set.tree.at("metadata").has("uid");
        if is_made { set.tree.int("status.terminatingReplicas") } else { Some(0) }
    };
    state.sets.iter().map(of).sum()
}

/// The status of a rollout: its progress, and whether the progress deadline is exceeded.
pub(crate) fn rollout_status(state: &DeploymentState) -> Tree {
    let mut status = count(state);
    let deployment = &state.deployment;
    let current = find(deployment.at("status"), PROGRESSING);
    let was_complete = of(&status, "replicas") == of(&status, "updatedReplicas")
        && current.is_some_and(|condition| condition.str("reason") == COMPLETE);
    if deadline(deployment).is_none() {
        conditions::remove(&mut status, PROGRESSING);
    } else if !was_complete {
        progress(state, &mut status, current);
    }
    match replica_failure(state) {
        Some(failure) => conditions::set(&mut status, failure),
        None => {
            conditions::remove(&mut status, REPLICA_FAILURE);
        }
    }
    status
}

fn progress(state: &DeploymentState, status: &mut Tree, current: Option<&Tree>) {
    let who = match state.new_set() {
        Some(set) => format!("ReplicaSet {:?}", set.tree.str("metadata.name")),
        None => format!("Deployment {:?}", state.deployment.str("metadata.name")),
    };
    if is_complete(&state.deployment, status) {
        set(
            status,
            Condition::new(PROGRESSING, "True", COMPLETE, &format!("{who} has successfully progressed.")),
            state.now,
        );
    } else if is_progressing(&state.deployment, status) {
        let message = format!("{who} is progressing.");
        let mut condition = Condition::new(PROGRESSING, "True", "ReplicaSetUpdated", &message).tree(state.now);
        // `lastUpdateTime` changes with each progress: the deadline counts from the last one.
        if let Some(since) = current.filter(|current| current.str("status") == "True") {
            condition.set("lastTransitionTime", since.str("lastTransitionTime"));
        }
        conditions::remove(status, PROGRESSING);
        conditions::set(status, condition);
    } else if is_timed_out(&state.deployment, status, state.now) {
        let message = format!("{who} has timed out progressing.");
        set(status, Condition::new(PROGRESSING, "False", TIMED_OUT, &message), state.now);
    }
}

pub(super) fn is_complete(deployment: &Tree, status: &Tree) -> bool {
    let wanted = super::state::replicas(deployment);
    let all = ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| of(status, field) == wanted);
    all && of(status, "observedGeneration") >= deployment.int("metadata.generation").unwrap_or_default()
}

fn is_progressing(deployment: &Tree, status: &Tree) -> bool {
    let before = deployment.at("status");
    let old = |status: &Tree| of(status, "replicas") - of(status, "updatedReplicas");
    let grew = ["updatedReplicas", "readyReplicas", "availableReplicas"]
        .iter()
        .any(|field| of(status, field) > of(before, field));
    grew || old(status) < old(before)
}

fn is_timed_out(deployment: &Tree, status: &Tree, now: Timestamp) -> bool {
    let Some(condition) = find(status, PROGRESSING) else { return false };
    match condition.str("reason") {
        COMPLETE => false,
        TIMED_OUT => true,
        _ => due(deployment, condition).is_some_and(|due| due < now),
    }
}

fn due(deployment: &Tree, condition: &Tree) -> Option<Timestamp> {
    let since = time::parse(condition.str("lastUpdateTime")).ok()?;
    Some(Timestamp { seconds: since.seconds + deadline(deployment)?, nanos: since.nanos })
}

/// When the progress deadline must be checked again.
pub(crate) fn requeue_after(deployment: &Tree, status: &Tree, now: Timestamp) -> Option<Duration> {
    let condition = find(status, PROGRESSING)?;
    if is_complete(deployment, status) || matches!(condition.str("reason"), COMPLETE | TIMED_OUT) {
        return None;
    }
    let left = due(deployment, condition)?.seconds - now.seconds;
    // One second more than the remaining time, since timestamps have whole seconds.
    Some(Duration::from_secs(u64::try_from(left).unwrap_or_default() + 1))
}

/// Sets the Progressing condition when the Deployment is paused or resumed, so that the deadline does not run while
/// paused.
pub(crate) fn set_paused(deployment: &mut Tree, now: Timestamp) {
    let reason = find(deployment.at("status"), PROGRESSING).map(|condition| condition.str("reason").to_string());
    let was_paused = reason.as_deref() == Some(PAUSED);
    let is_paused = deployment.bool("spec.paused");
    if deadline(deployment).is_none() || reason.as_deref() == Some(TIMED_OUT) || is_paused == was_paused {
        return;
    }
    let condition = if is_paused {
        Condition::new(PROGRESSING, "Unknown", PAUSED, "Deployment is paused")
    } else {
        Condition::new(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")
    };
    set(deployment.child("status"), condition, now);
}

/// Sets the Progressing condition when the new ReplicaSet was created or found.
pub(crate) fn set_new_set_progress(deployment: &mut Tree, name: &str, is_made: bool, now: Timestamp) {
    let is_told = find(deployment.at("status"), PROGRESSING).is_some();
    if deadline(deployment).is_none() || (is_told && !is_made) {
        return;
    }
    let (reason, verb) = if is_made { ("NewReplicaSetCreated", "Created") } else { ("FoundNewReplicaSet", "Found") };
    let message = format!("{verb} new replica set {name:?}");
    set(deployment.child("status"), Condition::new(PROGRESSING, "True", reason, &message), now);
}

/// Sets the Progressing condition when the new ReplicaSet could not be created.
pub(crate) fn set_failure(deployment: &mut Tree, message: &str, now: Timestamp) {
    if deadline(deployment).is_some() {
        set(deployment.child("status"), Condition::new(PROGRESSING, "False", "ReplicaSetCreateError", message), now);
    }
}

fn deadline(deployment: &Tree) -> Option<i64> {
    deployment.int("spec.progressDeadlineSeconds").filter(|seconds| *seconds != i64::from(i32::MAX))
}

/// The ReplicaFailure condition of the new ReplicaSet, or else of any.
fn replica_failure(state: &DeploymentState) -> Option<Tree> {
    let mut sets = state.new_set().into_iter().chain(&state.sets);
    let failure = sets.find_map(|set| find(set.tree.at("status"), REPLICA_FAILURE))?;
    let mut failure = failure.clone();
    let since = failure.str("lastTransitionTime").to_string();
    failure.set("lastUpdateTime", since);
    Some(failure)
}

struct Condition<'a> {
    of: &'static str,
    status: &'static str,
    reason: &'static str,
    message: &'a str,
}

impl<'a> Condition<'a> {
    fn new(of: &'static str, status: &'static str, reason: &'static str, message: &'a str) -> Condition<'a> {
        Condition { of, status, reason, message }
    }

    fn tree(&self, now: Timestamp) -> Tree {
        let now = time::format_seconds(now.seconds);
        tree! {
            "type" => self.of,
            "status" => self.status,
            "lastUpdateTime" => now.clone(),
            "lastTransitionTime" => now,
            "reason" => self.reason,
            "message" => self.message,
        }
    }
}

fn set(status: &mut Tree, condition: Condition<'_>, now: Timestamp) {
    conditions::set(status, condition.tree(now));
}

fn find<'a>(status: &'a Tree, of: &str) -> Option<&'a Tree> {
    status.list("conditions").iter().find(|condition| condition.str("type") == of)
}

fn of(status: &Tree, field: &str) -> i64 {
    status.int(field).unwrap_or_default()
}

fn status_count(set: &Tree, field: &str) -> i64 {
    of(set.at("status"), field)
}
