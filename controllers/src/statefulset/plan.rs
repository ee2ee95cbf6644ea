//! Plans a StatefulSet. Ordinals are created in order and deleted in reverse order, each waiting for its predecessor
//! to be available; parallel pod management does not wait.

use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Tree, tree};

use super::{claim, pod};
use crate::support::int_or_percent::{self, Rounding};
use crate::support::pods::is_terminating;
use crate::support::{history, pods};

/// A current or former template of the set.
pub(super) struct Revision {
    pub name: String,
    pub template: Tree,
}

impl Revision {
    pub(super) fn of(revision: &Tree) -> Revision {
        Revision { name: revision.str("metadata.name").to_string(), template: history::template(revision) }
    }
}

pub(super) struct ObservedState<'a> {
    pub set: &'a Tree,
    /// The pods controlled by the set.
    pub pods: &'a [Arc<Tree>],
    /// Returns a claim by name.
    pub claim: &'a dyn Fn(&str) -> Option<Arc<Tree>>,
    /// The revision of the current pods, and the revision they are updated to.
    pub current: Revision,
    pub update: Revision,
    pub now: Timestamp,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Create the claims, then the pod.
    Create {
        pod: Tree,
        claims: Vec<Tree>,
    },
    CreateClaims {
        pod: Arc<Tree>,
        claims: Vec<Tree>,
    },
    Delete(Arc<Tree>),
    Update(Tree),
    UpdateClaim(Tree),
    /// Report why a pod cannot be created yet.
    Refuse {
        pod: String,
        message: String,
    },
}

/// Phases of independent actions.
pub(crate) type Phases = Vec<Vec<Action>>;

/// The actions for one pod, and whether later pods must wait.
#[derive(Default)]
struct Step {
    actions: Vec<Action>,
    blocks: bool,
}

impl Step {
    fn wait(actions: Vec<Action>) -> Step {
        Step { actions, blocks: true }
    }
}

pub(super) fn plan(observed: &ObservedState<'_>) -> Phases {
    let set = observed.set;
    if set.at("metadata").has("deletionTimestamp") {
        return Vec::new();
    }
    let in_order = set.str("spec.podManagementPolicy") != "Parallel";
    let (replicas, condemned) = observed.split();
    let first_unavailable = observed.first_unavailable(&replicas, &condemned);
    // Iterators are lazy: nothing after a blocking step is evaluated.
    let steps: [Box<dyn Iterator<Item = Step> + '_>; 3] = [
        Box::new(replicas.iter().map(|(ordinal, there)| observed.keep(*ordinal, there.as_ref(), in_order))),
        Box::new(condemned.iter().map(|there| observed.release_claims(there))),
        Box::new(condemned.iter().map(|there| observed.process_condemned(there, first_unavailable.as_ref(), in_order))),
    ];
    let mut phases = Vec::new();
    for steps in steps {
        let (actions, blocked) = collect_actions(steps, in_order);
        phases.push(actions);
        if blocked {
            return phases;
        }
    }
    phases.push(observed.roll(&replicas));
    phases
}

/// The actions of the steps up to the first one that blocks.
fn collect_actions(steps: impl Iterator<Item = Step>, in_order: bool) -> (Vec<Action>, bool) {
    let mut actions = Vec::new();
    for step in steps {
        actions.extend(step.actions);
        if step.blocks && in_order {
            return (actions, true);
        }
    }
    (actions, false)
}

type Replica = (i64, Option<Arc<Tree>>);

impl ObservedState<'_> {
    /// The desired pods in order, and the surplus ones in reverse order.
    fn split(&self) -> (Vec<Replica>, Vec<Arc<Tree>>) {
        let start = pod::start(self.set);
        let count = self.set.int("spec.replicas").unwrap_or_default();
        let mut replicas: Vec<Replica> = (start..start + count).map(|ordinal| (ordinal, None)).collect();
        let mut condemned = Vec::new();
        for there in self.pods {
            let Some(ordinal) = pod::ordinal(there) else { continue };
            match usize::try_from(ordinal - start).ok().and_then(|at| replicas.get_mut(at)) {
                Some(slot) => slot.1 = Some(there.clone()),
                None => condemned.push(there.clone()),
            }
        }
        condemned.sort_by_key(|there| std::cmp::Reverse(pod::ordinal(there)));
        (replicas, condemned)
    }

    fn first_unavailable(&self, replicas: &[Replica], condemned: &[Arc<Tree>]) -> Option<Arc<Tree>> {
        if let Some((_, pod)) = replicas.iter().find(|(_, pod)| pod.as_ref().is_none_or(|pod| self.is_unavailable(pod)))
        {
            return pod.clone();
        }
        condemned.iter().rev().find(|pod| self.is_unavailable(pod)).cloned()
    }

    fn is_available(&self, there: &Tree) -> bool {
        let min_ready = self.set.int("spec.minReadySeconds").unwrap_or_default();
        pod::is_running_and_ready(there) && pods::is_available(there, min_ready, self.now.seconds)
    }

    fn is_unavailable(&self, there: &Tree) -> bool {
        !self.is_available(there) || is_terminating(there)
    }

    /// Creates a missing pod, or corrects an existing one.
    fn keep(&self, ordinal: i64, there: Option<&Arc<Tree>>, in_order: bool) -> Step {
        let Some(there) = there else { return Step::wait(self.create(ordinal)) };
        if pods::is_terminal(there) {
            let delete = (!is_terminating(there)).then(|| Action::Delete(there.clone()));
            return Step::wait(delete.into_iter().collect());
        }
        let mut actions = Vec::new();
        if there.str("status.phase") == "Pending" {
            let claims = self.missing_claims(ordinal);
            if !claims.is_empty() {
                actions.push(Action::CreateClaims { pod: there.clone(), claims });
            }
        }
        if in_order && self.is_unavailable(there) {
            return Step::wait(actions);
        }
        actions.extend(pod::corrected(self.set, there).map(Action::Update));
        actions.extend(self.corrected_claims(there));
        Step { actions, blocks: false }
    }

    fn create(&self, ordinal: i64) -> Vec<Action> {
        let name = format!("{}-{ordinal}", self.set.str("metadata.name"));
        let claims = claim::claims_of_pod(self.set, ordinal);
        let there: Vec<Arc<Tree>> =
            claims.iter().filter_map(|claim| (self.claim)(claim.str("metadata.name"))).collect();
        if there.iter().any(|claim| claim::is_stale(claim, &name)) {
            return Vec::new();
        }
        if let Some(claim) = there.iter().find(|claim| is_terminating(claim)) {
            let message = format!("pvc {} is being deleted", claim.str("metadata.name"));
            return vec![Action::Refuse { pod: name, message }];
        }
        let revision = if self.keeps_current_revision(ordinal) { &self.current } else { &self.update };
        let pod = pod::build(self.set, &revision.template, &revision.name, ordinal);
        vec![Action::Create { pod, claims: self.missing_claims(ordinal) }]
    }

    /// Ordinals below the partition keep the current revision.
    fn keeps_current_revision(&self, ordinal: i64) -> bool {
        self.set.str("spec.updateStrategy.type") == "RollingUpdate" && ordinal < pod::start(self.set) + self.partition()
    }

    fn partition(&self) -> i64 {
        self.set.int("spec.updateStrategy.rollingUpdate.partition").unwrap_or_default()
    }

    fn missing_claims(&self, ordinal: i64) -> Vec<Tree> {
        let mut claims = claim::claims_of_pod(self.set, ordinal);
        claims.retain(|claim| (self.claim)(claim.str("metadata.name")).is_none());
        claims
    }

    fn corrected_claims(&self, there: &Tree) -> Vec<Action> {
        let Some(ordinal) = pod::ordinal(there) else { return Vec::new() };
        let claims = claim::claims_of_pod(self.set, ordinal)
            .into_iter()
            .filter_map(|claim| (self.claim)(claim.str("metadata.name")));
        claims.filter_map(|claim| claim::corrected(self.set, there, &claim)).map(Action::UpdateClaim).collect()
    }

    fn release_claims(&self, condemned: &Tree) -> Step {
        Step { actions: self.corrected_claims(condemned), blocks: false }
    }

    /// Deletes surplus pods in reverse order, only while all are available, except for the first unavailable pod
    /// itself.
    fn process_condemned(&self, condemned: &Arc<Tree>, first_unavailable: Option<&Arc<Tree>>, in_order: bool) -> Step {
        if is_terminating(condemned) {
            return Step::wait(Vec::new());
        }
        let is_to_blame = first_unavailable.is_some_and(|first| Arc::ptr_eq(first, condemned));
        if in_order && !self.is_available(condemned) && !is_to_blame {
            return Step::wait(Vec::new());
        }
        Step::wait(vec![Action::Delete(condemned.clone())])
    }

    /// Deletes outdated pods in reverse order within maxUnavailable. Unavailable pods are replaced at once, but pods
    /// that are starting are waited for: a broken template stops at the first pod.
    fn roll(&self, replicas: &[Replica]) -> Vec<Action> {
        if self.set.str("spec.updateStrategy.type") != "RollingUpdate" {
            return Vec::new();
        }
        let is_old = |there: &Tree| pod::revision(there) != self.update.name && !is_terminating(there);
        let unavailable = |there: &Option<Arc<Tree>>| there.as_ref().is_none_or(|there| self.is_unavailable(there));
        let lost: Vec<&Option<Arc<Tree>>> =
            replicas.iter().map(|(_, there)| there).filter(|there| unavailable(there)).collect();
        let mut moving = lost.iter().filter(|there| !there.as_ref().is_some_and(|there| is_old(there))).count();
        let (mut lost, most) = (lost.len(), self.max_unavailable());
        let mut actions = Vec::new();
        for there in replicas
            .iter()
            .skip(usize::try_from(self.partition()).unwrap_or_default())
            .rev()
            .filter_map(|(_, there)| there.as_ref())
        {
            if moving >= most {
                break;
            }
            if !is_old(there) || (!self.is_unavailable(there) && lost >= most) {
                continue;
            }
            lost += usize::from(!self.is_unavailable(there));
            moving += 1;
            actions.push(Action::Delete(there.clone()));
        }
        actions
    }

    fn max_unavailable(&self) -> usize {
        let replicas = self.set.int("spec.replicas").unwrap_or_default();
        let value = self.set.at("spec.updateStrategy.rollingUpdate.maxUnavailable");
        let most = int_or_percent::scaled_value(value, replicas, Rounding::Down).unwrap_or(1);
        usize::try_from(most).unwrap_or_default().max(1)
    }
}

/// The status of a set with these pods.
pub(super) fn status(set: &Tree, pods: &[Arc<Tree>], revisions: [&str; 2], collisions: i64, now: Timestamp) -> Tree {
    let [current, update] = revisions;
    let min_ready = set.int("spec.minReadySeconds").unwrap_or_default();
    let count = |holds: &dyn Fn(&Tree) -> bool| pods.iter().filter(|pod| holds(pod)).count() as i64;
    let of = |revision: &str| {
        count(&|there| pod::is_created(there) && !is_terminating(there) && pod::revision(there) == revision)
    };
    let replicas = count(&pod::is_created);
    let ready = count(&pod::is_running_and_ready);
    let updated = of(update);
    let is_complete = [updated, ready, replicas].iter().all(|count| Some(*count) == set.int("spec.replicas"));
    let (current, current_replicas) = if is_complete { (update, updated) } else { (current, of(current)) };
    let available =
        count(&|there| pod::is_running_and_ready(there) && pods::is_available(there, min_ready, now.seconds));
    let mut status = tree! {
        "replicas" => replicas,
        "currentRevision" => current,
        "updateRevision" => update,
        "collisionCount" => collisions,
        "availableReplicas" => available,
    };
    for (field, value) in [
        ("observedGeneration", set.int("metadata.generation").unwrap_or_default()),
        ("readyReplicas", ready),
        ("currentReplicas", current_replicas),
        ("updatedReplicas", updated),
    ] {
        if value != 0 {
            status.set(field, value);
        }
    }
    if let Some(conditions) = set.at("status").get("conditions") {
        status.set("conditions", conditions.clone());
    }
    status
}

/// When the next ready pod becomes available.
pub(crate) fn next_available(set: &Tree, pods: &[Arc<Tree>], now: Timestamp) -> Option<Duration> {
    let min_ready = set.int("spec.minReadySeconds").unwrap_or_default();
    pods::next_available(pods, min_ready, now.seconds)
}

/// The change that makes the newest revision match the template.
#[derive(Debug, PartialEq)]
pub(crate) enum RevisionChange {
    Keep(Arc<Tree>),
    Renumber(Tree),
    /// With this revision number.
    Create(i64),
}

/// `revisions` are sorted.
pub(super) fn newest(set: &Tree, revisions: &[Arc<Tree>]) -> RevisionChange {
    let template = set.at("spec.template");
    let next = revisions.last().map(|last| history::number(last)).unwrap_or_default() + 1;
    match revisions.iter().rev().find(|revision| history::has_template(revision, template)) {
        None => RevisionChange::Create(next),
        Some(same) if history::number(same) == next - 1 => RevisionChange::Keep(same.clone()),
        Some(same) => RevisionChange::Renumber(history::renumbered(same, next)),
    }
}

#[cfg(test)]
mod tests;
