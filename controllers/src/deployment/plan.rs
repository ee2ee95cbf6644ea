//! What a Deployment needs next: its sets made, sized and cleaned up, and its status told.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::time::Timestamp;

use super::work::{Fate, Set, Work};
use super::{revision, rollback, rollout, status};

/// A write, in the order in which they are to be made.
#[derive(Debug, PartialEq)]
pub enum Write {
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
    /// The Deployment's status, and its annotation with the revision.
    Status(Tree),
}

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub writes: Vec<Write>,
    pub again: Option<Duration>,
}

/// `old_pods_run` tells whether a pod of another set than the new one still runs.
pub fn plan(
    deployment: &Tree,
    sets: &[Arc<Tree>],
    old_pods_run: impl FnOnce(Option<&Tree>) -> bool,
    now: Timestamp,
) -> Plan {
    let mut work = Work::new(deployment, sets, now);
    let is_deleting = deployment.at("metadata").has("deletionTimestamp");
    if !is_deleting {
        status::tell_paused(&mut work.deployment, now);
    }
    if let Some(wished) = rollback::wished(deployment).filter(|_| !is_deleting && !deployment.bool("spec.paused")) {
        return Plan { writes: vec![Write::Rollback(rollback::plan(&work, wished))], again: None };
    }
    let found = revision::sync(&mut work);
    if found {
        tell_new(&mut work, false);
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
        tell_new(&mut work, true);
    }
    let status = status::of_rollout(&work);
    let again = status::look_again(deployment, &status, now);
    Plan { writes: writes(work, deployment, status), again }
}

fn tell_new(work: &mut Work, is_made: bool) {
    let name = work.new_set().map(|set| set.tree.str("metadata.name").to_string()).unwrap_or_default();
    status::tell_new_set(&mut work.deployment, &name, is_made, work.now);
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
    // The new set first: it is what the others make room for.
    writes.sort_by_key(|write| !matches!(write, Write::Create { .. }));
    changed.set("status", status);
    let differs = |path: &str| changed.at(path) != deployment.at(path);
    // What is written to a set brings the Deployment back at once: counts alone wait until then.
    let is_news = differs("metadata") || differs("status.conditions");
    if is_news || (writes.is_empty() && differs("status")) {
        writes.push(Write::Status(changed));
    }
    writes
}

fn write(set: Set) -> Option<Write> {
    let event = scaled(&set);
    match set.fate {
        Fate::Keep => None,
        Fate::Create => Some(Write::Create { set: set.tree, event }),
        Fate::Update => Some(Write::Update { set: set.tree, event }),
        Fate::Delete => Some(Write::Delete { set: set.tree }),
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

/// The Deployment's status once a set with the name of the new one turned out to be another's.
pub fn collided(deployment: &Tree) -> Tree {
    let mut deployment = deployment.clone();
    let collisions = deployment.int("status.collisionCount").unwrap_or_default();
    deployment.child("status").set("collisionCount", collisions + 1);
    deployment
}

#[cfg(test)]
mod tests;
