//! Plans the next step of a Deployment: creates, scales and cleans up its ReplicaSets, and updates its status.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::time::Timestamp;

use super::state::{DeploymentState, ReplicaSet, ReplicaSetChange};
use super::{revision, rollback, rollout, status};

/// A write, in the order of execution.
#[derive(Debug, PartialEq)]
pub(super) enum Write {
    Create {
        set: Tree,
        event: Option<String>,
    },
    Update {
        set: Tree,
        event: Option<String>,
    },
    Delete {
        set: Tree,
    },
    Rollback(rollback::Rollback),
    /// The Deployment's status and its revision annotation.
    Status(Tree),
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub writes: Vec<Write>,
    pub again: Option<Duration>,
}

/// `old_pods_run` is whether a pod of an old ReplicaSet still runs.
pub(super) fn plan(
    deployment: &Tree,
    sets: &[Arc<Tree>],
    old_pods_run: impl FnOnce(Option<&Tree>) -> bool,
    now: Timestamp,
) -> Plan {
    let mut state = DeploymentState::new(deployment, sets, now);
    let is_deleting = deployment.at("metadata").has("deletionTimestamp");
    if !is_deleting {
        status::set_paused(&mut state.deployment, now);
    }
    if let Some(wished) =
        rollback::requested_revision(deployment).filter(|_| !is_deleting && !deployment.bool("spec.paused"))
    {
        return Plan { writes: vec![Write::Rollback(rollback::plan(&state, wished))], again: None };
    }
    let found = revision::sync(&mut state);
    if found {
        set_new_progress(&mut state, false);
    }
    if is_deleting {
        let status = status::count(&state);
        return Plan { writes: writes(state, deployment, status), again: None };
    }
    if deployment.bool("spec.paused") || rollout::is_scaling(&state) {
        rollout::scale(&mut state);
        if deployment.bool("spec.paused") {
            revision::clean_up(&mut state);
        }
        let status = status::count(&state);
        return Plan { writes: writes(state, deployment, status), again: None };
    }
    roll_out(&mut state, old_pods_run);
    if !found && state.new.is_some() {
        set_new_progress(&mut state, true);
    }
    let status = status::rollout_status(&state);
    let again = status::requeue_after(deployment, &status, now);
    Plan { writes: writes(state, deployment, status), again }
}

fn set_new_progress(state: &mut DeploymentState, is_made: bool) {
    let name = state.new_set().map(|set| set.tree.str("metadata.name").to_string()).unwrap_or_default();
    status::set_new_set_progress(&mut state.deployment, &name, is_made, state.now);
}

fn roll_out(state: &mut DeploymentState, old_pods_run: impl FnOnce(Option<&Tree>) -> bool) {
    let is_busy = if state.is_rolling() {
        rollout::roll(state)
    } else {
        let old_pods_run = old_pods_run(state.new_set().map(|set| &set.tree));
        rollout::recreate(state, old_pods_run)
    };
    if !is_busy && status::is_complete(&state.deployment, state.deployment.at("status")) {
        revision::clean_up(state);
    }
}

fn writes(state: DeploymentState, deployment: &Tree, status: Tree) -> Vec<Write> {
    let mut changed = state.deployment;
    let mut writes: Vec<Write> = state.sets.into_iter().filter_map(write).collect();
    // The new ReplicaSet is created before the old ones are scaled down.
    writes.sort_by_key(|write| !matches!(write, Write::Create { .. }));
    changed.set("status", status);
    let differs = |path: &str| changed.at(path) != deployment.at(path);
    // Writes to a ReplicaSet requeue the Deployment: changes of counts alone can wait until then.
    let is_news = differs("metadata") || differs("status.conditions");
    if is_news || (writes.is_empty() && differs("status")) {
        writes.push(Write::Status(changed));
    }
    writes
}

fn write(set: ReplicaSet) -> Option<Write> {
    let event = scaled(&set);
    match set.change {
        ReplicaSetChange::Keep => None,
        ReplicaSetChange::Create => Some(Write::Create { set: set.tree, event }),
        ReplicaSetChange::Update => Some(Write::Update { set: set.tree, event }),
        ReplicaSetChange::Delete => Some(Write::Delete { set: set.tree }),
    }
}

fn scaled(set: &ReplicaSet) -> Option<String> {
    let (before, after) = (set.before, set.replicas());
    let direction = match after.cmp(&before) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => "up",
        std::cmp::Ordering::Less => "down",
    };
    Some(format!("Scaled {direction} replica set {} from {before} to {after}", set.tree.str("metadata.name")))
}

/// The Deployment with a higher collision count, if another ReplicaSet has the name of the new one.
pub(crate) fn with_increased_collision_count(deployment: &Tree) -> Tree {
    let mut deployment = deployment.clone();
    let collisions = deployment.int("status.collisionCount").unwrap_or_default();
    deployment.child("status").set("collisionCount", collisions + 1);
    deployment
}

#[cfg(test)]
mod tests;
