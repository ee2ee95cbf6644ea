//! The strategies RollingUpdate and Recreate, and proportional scaling.

use super::revision;
use super::state::{DESIRED, DeploymentState, MAX, ReplicaSet};

/// Scales the new ReplicaSet up as far as `maxSurge` allows, otherwise scales the old ones down as far as
/// `maxUnavailable` allows. Returns whether something was scaled.
pub(super) fn roll(state: &mut DeploymentState) -> bool {
    if revision::sync(state) {
        return scale_up_new(state) || scale_down_old(state);
    }
    revision::create(state);
    if let Some(new) = state.new {
        let size = new_size(state, new);
        state.resize(new, size);
    }
    scale_down_old(state)
}

fn scale_up_new(state: &mut DeploymentState) -> bool {
    let Some(new) = state.new else { return false };
    let size = new_size(state, new);
    state.resize_if_other(new, size)
}

fn new_size(state: &DeploymentState, new: usize) -> i64 {
    let (wanted, has) = (state.replicas(), state.sets[new].replicas());
    if has >= wanted {
        return wanted;
    }
    let room = wanted + state.max_surge() - state.total();
    has + room.clamp(0, wanted - has)
}

fn scale_down_old(state: &mut DeploymentState) -> bool {
    let Some(new) = state.new_set() else { return false };
    let min_available = state.replicas() - state.max_unavailable();
    let new_unavailable = new.replicas() - new.available();
    let most = state.total() - min_available - new_unavailable;
    if most <= 0 {
        return false;
    }
    let cleaned = drop_unhealthy(state, most);
    let available = state.available();
    let scaled = drop_healthy(state, available - min_available);
    cleaned || scaled
}

/// Unavailable pods are removed first, since they serve no requests.
fn drop_unhealthy(state: &mut DeploymentState, most: i64) -> bool {
    scale_down_by(state, most, |set| (set.replicas() - set.available()).max(0))
}

fn drop_healthy(state: &mut DeploymentState, most: i64) -> bool {
    scale_down_by(state, most, ReplicaSet::replicas)
}

fn scale_down_by(state: &mut DeploymentState, most: i64, of: impl Fn(&ReplicaSet) -> i64) -> bool {
    let mut left = most;
    let mut dropped = false;
    for at in state.old() {
        let count = of(&state.sets[at]).min(left);
        if count > 0 {
            let size = state.sets[at].replicas() - count;
            dropped |= state.resize_if_other(at, size);
            left -= count;
        }
    }
    dropped
}

/// All old pods must be deleted before the first new one is created.
pub(super) fn recreate(state: &mut DeploymentState, old_pods_run: bool) -> bool {
    let is_there = revision::sync(state);
    let mut scaled = false;
    for at in state.old() {
        scaled |= state.resize_if_other(at, 0);
    }
    let old_replicas: i64 =
        state.old().iter().map(|at| state.sets[*at].tree.int("status.replicas").unwrap_or_default()).sum();
    if scaled || old_replicas > 0 || old_pods_run {
        return true;
    }
    if !is_there {
        revision::create(state);
    }
    if let Some(new) = state.new {
        let size = state.replicas();
        if !is_there {
            state.resize(new, size);
        } else {
            state.resize_if_other(new, size);
        }
    }
    false
}

/// Whether the Deployment was scaled since its ReplicaSets were sized.
pub(crate) fn is_scaling(state: &DeploymentState) -> bool {
    let differs =
        |set: &ReplicaSet| set.annotation(DESIRED).parse::<i64>().is_ok_and(|desired| desired != state.replicas());
    let active: Vec<&ReplicaSet> = state.sets.iter().filter(|set| set.replicas() > 0).collect();
    // With Recreate, old pods are removed first regardless of the size.
    let has_shares = state.is_rolling() || active.len() <= 1;
    has_shares && active.into_iter().any(differs)
}

/// Scales the ReplicaSets proportionally, also during a rollout.
pub(super) fn scale(state: &mut DeploymentState) {
    let active: Vec<usize> = (0..state.sets.len()).filter(|at| state.sets[*at].replicas() > 0).collect();
    let only = match active[..] {
        [] => state.new.or_else(|| state.old().last().copied()),
        [only] => Some(only),
        _ => None,
    };
    if let Some(only) = only {
        // The size may be right already but not the annotations; without them scaling would repeat forever.
        let size = state.replicas();
        state.resize(only, size);
    } else if is_saturated(state) {
        for at in state.old() {
            state.resize_if_other(at, 0);
        }
    } else if state.is_rolling() && !active.is_empty() {
        scale_in_proportion(state, active);
    }
}

/// Whether all pods of the new ReplicaSet are available: old ReplicaSets can then be scaled down.
fn is_saturated(state: &DeploymentState) -> bool {
    let wanted = state.replicas();
    state.new_set().is_some_and(|new| {
        new.replicas() == wanted && new.annotation(DESIRED).parse() == Ok(wanted) && new.available() == wanted
    })
}

fn scale_in_proportion(state: &mut DeploymentState, mut active: Vec<usize>) {
    let allowed = if state.replicas() > 0 { state.replicas() + state.max_surge() } else { 0 };
    let to_add = allowed - active.iter().map(|at| state.sets[*at].replicas()).sum::<i64>();
    // Larger ReplicaSets first; of equal ones the newer grows and the older shrinks.
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|at| std::cmp::Reverse(state.sets[*at].replicas()));
    let mut added = 0;
    let mut sizes = Vec::new();
    for at in &active {
        let share = share_of(state, &state.sets[*at], to_add - added, to_add);
        sizes.push(state.sets[*at].replicas() + share);
        added += share;
    }
    // The rounding remainder goes to the largest ReplicaSet.
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    active.into_iter().zip(sizes).for_each(|(at, size)| state.resize(at, size));
}

/// The number of the `left` pods that a ReplicaSet gains or loses.
fn share_of(state: &DeploymentState, set: &ReplicaSet, left: i64, to_add: i64) -> i64 {
    if left == 0 || to_add == 0 {
        return 0;
    }
    let share = fraction(state, set);
    if to_add > 0 { share.min(left) } else { share.max(left) }
}

fn fraction(state: &DeploymentState, set: &ReplicaSet) -> i64 {
    let size = set.replicas();
    if state.replicas() == 0 {
        return -size;
    }
    let annotated = set.annotation(MAX).parse::<i64>().ok().filter(|max| *max != 0);
    let before = annotated.unwrap_or_else(|| state.deployment.int("status.replicas").unwrap_or_default());
    if before == 0 {
        return 0;
    }
    let now = state.replicas() + state.max_surge();
    // Rounded half away from zero; all values are positive.
    (2 * size * now + before) / (2 * before) - size
}
