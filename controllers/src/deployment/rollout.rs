//! The strategies RollingUpdate and Recreate, and proportional scaling.

use super::revision;
use super::work::{DESIRED, MAX, Set, Work};

/// Scales the new ReplicaSet up as far as `maxSurge` allows, otherwise scales the old ones down as far as
/// `maxUnavailable` allows. Returns whether something was scaled.
pub(super) fn roll(work: &mut Work) -> bool {
    if revision::sync(work) {
        return grow_new(work) || shrink_old(work);
    }
    revision::create(work);
    if let Some(new) = work.new {
        let size = new_size(work, new);
        work.resize(new, size);
    }
    shrink_old(work)
}

fn grow_new(work: &mut Work) -> bool {
    let Some(new) = work.new else { return false };
    let size = new_size(work, new);
    work.resize_if_other(new, size)
}

fn new_size(work: &Work, new: usize) -> i64 {
    let (wanted, has) = (work.replicas(), work.sets[new].replicas());
    if has >= wanted {
        return wanted;
    }
    let room = wanted + work.max_surge() - work.total();
    has + room.clamp(0, wanted - has)
}

fn shrink_old(work: &mut Work) -> bool {
    let Some(new) = work.new_set() else { return false };
    let min_available = work.replicas() - work.max_unavailable();
    let new_unavailable = new.replicas() - new.available();
    let most = work.total() - min_available - new_unavailable;
    if most <= 0 {
        return false;
    }
    let cleaned = drop_unhealthy(work, most);
    let available = work.available();
    let scaled = drop_healthy(work, available - min_available);
    cleaned || scaled
}

/// Unavailable pods are removed first, since they serve no requests.
fn drop_unhealthy(work: &mut Work, most: i64) -> bool {
    drop_from_old(work, most, |set| (set.replicas() - set.available()).max(0))
}

fn drop_healthy(work: &mut Work, most: i64) -> bool {
    drop_from_old(work, most, Set::replicas)
}

fn drop_from_old(work: &mut Work, most: i64, of: impl Fn(&Set) -> i64) -> bool {
    let mut left = most;
    let mut dropped = false;
    for at in work.old() {
        let count = of(&work.sets[at]).min(left);
        if count > 0 {
            let size = work.sets[at].replicas() - count;
            dropped |= work.resize_if_other(at, size);
            left -= count;
        }
    }
    dropped
}

/// All old pods must be gone before the first new one is created.
pub(super) fn recreate(work: &mut Work, old_pods_run: bool) -> bool {
    let is_there = revision::sync(work);
    let mut scaled = false;
    for at in work.old() {
        scaled |= work.resize_if_other(at, 0);
    }
    let old_replicas: i64 =
        work.old().iter().map(|at| work.sets[*at].tree.int("status.replicas").unwrap_or_default()).sum();
    if scaled || old_replicas > 0 || old_pods_run {
        return true;
    }
    if !is_there {
        revision::create(work);
    }
    if let Some(new) = work.new {
        let size = work.replicas();
        if !is_there {
            work.resize(new, size);
        } else {
            work.resize_if_other(new, size);
        }
    }
    false
}

/// Whether the Deployment was scaled since its ReplicaSets were sized.
pub(crate) fn is_scaling(work: &Work) -> bool {
    let differs = |set: &Set| set.annotation(DESIRED).parse::<i64>().is_ok_and(|desired| desired != work.replicas());
    let active: Vec<&Set> = work.sets.iter().filter(|set| set.replicas() > 0).collect();
    // With Recreate, old pods are removed first regardless of the size.
    let has_shares = work.is_rolling() || active.len() <= 1;
    has_shares && active.into_iter().any(differs)
}

/// Scales the ReplicaSets proportionally, also during a rollout.
pub(super) fn scale(work: &mut Work) {
    let active: Vec<usize> = (0..work.sets.len()).filter(|at| work.sets[*at].replicas() > 0).collect();
    let only = match active[..] {
        [] => work.new.or_else(|| work.old().last().copied()),
        [only] => Some(only),
        _ => None,
    };
    if let Some(only) = only {
        // The size may be right already but not the annotations; without them scaling would repeat forever.
        let size = work.replicas();
        work.resize(only, size);
    } else if is_saturated(work) {
        for at in work.old() {
            work.resize_if_other(at, 0);
        }
    } else if work.is_rolling() && !active.is_empty() {
        scale_in_proportion(work, active);
    }
}

/// Whether the new ReplicaSet has all its pods available, so that old ones can be scaled down.
fn is_saturated(work: &Work) -> bool {
    let wanted = work.replicas();
    work.new_set().is_some_and(|new| {
        new.replicas() == wanted && new.annotation(DESIRED).parse() == Ok(wanted) && new.available() == wanted
    })
}

fn scale_in_proportion(work: &mut Work, mut active: Vec<usize>) {
    let allowed = if work.replicas() > 0 { work.replicas() + work.max_surge() } else { 0 };
    let to_add = allowed - active.iter().map(|at| work.sets[*at].replicas()).sum::<i64>();
    // Larger ReplicaSets first; of equal ones the newer grows and the older shrinks.
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|at| std::cmp::Reverse(work.sets[*at].replicas()));
    let mut added = 0;
    let mut sizes = Vec::new();
    for at in &active {
        let share = share_of(work, &work.sets[*at], to_add - added, to_add);
        sizes.push(work.sets[*at].replicas() + share);
        added += share;
    }
    // The rounding remainder goes to the largest ReplicaSet.
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    active.into_iter().zip(sizes).for_each(|(at, size)| work.resize(at, size));
}

/// The number of the `left` pods that a ReplicaSet gains or loses.
fn share_of(work: &Work, set: &Set, left: i64, to_add: i64) -> i64 {
    if left == 0 || to_add == 0 {
        return 0;
    }
    let share = fraction(work, set);
    if to_add > 0 { share.min(left) } else { share.max(left) }
}

fn fraction(work: &Work, set: &Set) -> i64 {
    let size = set.replicas();
    if work.replicas() == 0 {
        return -size;
    }
    let annotated = set.annotation(MAX).parse::<i64>().ok().filter(|max| *max != 0);
    let before = annotated.unwrap_or_else(|| work.deployment.int("status.replicas").unwrap_or_default());
    if before == 0 {
        return 0;
    }
    let now = work.replicas() + work.max_surge();
    // Rounded half away from zero; all values are positive.
    (2 * size * now + before) / (2 * before) - size
}
