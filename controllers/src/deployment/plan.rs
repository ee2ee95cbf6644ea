//! Plans the next step of a Deployment: creates, scales and cleans up its ReplicaSets, and updates its status.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::time::Timestamp;

use super::work::{Set, SetChange, Work};
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
    let mut work = Work::new(deployment, sets, now);
    let is_deleting = deployment.at("metadata").has("deletionTimestamp");
    if !is_deleting {
        status::set_paused(&mut work.deployment, now);
    }
    if let Some(wished) = rollback::wished(deployment).filter(|_| !is_deleting && !deployment.bool("spec.paused")) {
        return Plan { writes: vec![Write::Rollback(rollback::plan(&work, wished))], again: None };
    }
    let found = revision::sync(&mut work);
    if found {
        set_new_progress(&mut work, false);
    }
    if is_deleting {
        let status = status::count(&work);
        return Plan { writes: writes(work, deployment, status), again: None };
    }
    if deployment.bool("spec.paused") || rollout::is_scaling(&work) {
        rollout::scale(&mut work);
        if deployment.bool("spec.paused") {
            revision::clean_up(&mut work);
        }
        let status = status::count(&work);
        return Plan { writes: writes(work, deployment, status), again: None };
    }
    roll_out(&mut work, old_pods_run);
    if !found && work.new.is_some() {
        set_new_progress(&mut work, true);
    }
    let status = status::of_rollout(&work);
    let again = status::requeue_after(deployment, &status, now);
    Plan { writes: writes(work, deployment, status), again }
}

fn set_new_progress(work: &mut Work, is_made: bool) {
    let name = work.new_set().map(|set| set.tree.str("metadata.name").to_string()).unwrap_or_default();
    status::set_new_set_progress(&mut work.deployment, &name, is_made, work.now);
}

fn roll_out(work: &mut Work, old_pods_run: impl FnOnce(Option<&Tree>) -> bool) {
    let is_busy = if work.is_rolling() {
        rollout::roll(work)
    } else {
        let old_pods_run = old_pods_run(work.new_set().map(|set| &set.tree));
        rollout::recreate(work, old_pods_run)
    };
    if !is_busy && status::is_complete(&work.deployment, work.deployment.at("status")) {
        revision::clean_up(work);
    }
}

fn writes(work: Work, deployment: &Tree, status: Tree) -> Vec<Write> {
    let mut changed = work.deployment;
    let mut writes: Vec<Write> = work.sets.into_iter().filter_map(write).collect();
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

fn write(set: Set) -> Option<Write> {
    let event = scaled(&set);
    match set.change {
        SetChange::Keep => None,
        SetChange::Create => Some(Write::Create { set: set.tree, event }),
        SetChange::Update => Some(Write::Update { set: set.tree, event }),
        SetChange::Delete => Some(Write::Delete { set: set.tree }),
    }
}

fn scaled(set: &Set) -> Option<String> {
    let (before, after) = (set.before, set.replicas());
    let direction = match after.cmp(&before) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => "up",
        std::cmp::Ordering::Less => "down",
    };
    Some(format!("Scaled {direction} replica set {} from {before} to {after}", set.tree.str("metadata.name")))
}

/// The Deployment with a higher collision count, after the name of the new ReplicaSet was taken.
pub(crate) fn collided(deployment: &Tree) -> Tree {
    let mut deployment = deployment.clone();
    let collisions = deployment.int("status.collisionCount").unwrap_or_default();
    deployment.child("status").set("collisionCount", collisions + 1);
    deployment
}

#[cfg(test)]
mod tests;
