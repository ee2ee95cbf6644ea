//! A Deployment and its ReplicaSets during planning. Each changed object is written once afterwards.

use std::sync::Arc;

use api::Tree;
use api::time::Timestamp;

use super::revision;
use crate::support::int_or_percent::{self, Rounding};

pub(crate) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

pub(super) struct DeploymentState {
    pub deployment: Tree,
    /// Oldest first.
    pub sets: Vec<ReplicaSet>,
    /// The ReplicaSet with the Deployment's template.
    pub new: Option<usize>,
    pub now: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaSetChange {
    Keep,
    Create,
    Update,
    Delete,
}

pub(super) struct ReplicaSet {
    pub tree: Tree,
    pub change: ReplicaSetChange,
    /// The replica count before planning.
    pub before: i64,
}

impl ReplicaSet {
    fn existing(tree: Tree) -> ReplicaSet {
        let before = replicas(&tree);
        ReplicaSet { tree, change: ReplicaSetChange::Keep, before }
    }

    pub(super) fn replicas(&self) -> i64 {
        replicas(&self.tree)
    }

    pub(super) fn available(&self) -> i64 {
        self.tree.int("status.availableReplicas").unwrap_or_default()
    }

    pub(super) fn annotation(&self, key: &str) -> &str {
        self.tree.map("metadata.annotations").str(key)
    }

    /// Sets an annotation and marks the ReplicaSet as changed if the value differs.
    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        if !self.tree.map("metadata.annotations").contains(key) || self.annotation(key) != value {
            self.tree.child("metadata.annotations").set(key, value);
            self.touch();
        }
    }

    pub(super) fn touch(&mut self) {
        if self.change == ReplicaSetChange::Keep {
            self.change = ReplicaSetChange::Update;
        }
    }

    fn age(&self) -> (&str, &str) {
        (self.tree.str("metadata.creationTimestamp"), self.tree.str("metadata.name"))
    }
}

impl DeploymentState {
    pub(super) fn new(deployment: &Tree, sets: &[Arc<Tree>], now: Timestamp) -> DeploymentState {
        let mut sets: Vec<ReplicaSet> = sets.iter().map(|set| ReplicaSet::existing((**set).clone())).collect();
        sets.sort_by(|a, b| a.age().cmp(&b.age()));
        let template = deployment.at("spec.template");
        let new = sets.iter().position(|set| revision::is_same_template(set.tree.at("spec.template"), template));
        DeploymentState { deployment: deployment.clone(), sets, new, now }
    }

    pub(crate) fn new_set(&self) -> Option<&ReplicaSet> {
        self.new.map(|at| &self.sets[at])
    }

    /// Indexes of the ReplicaSets with other templates, oldest first.
    pub(super) fn old(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|at| Some(*at) != self.new).collect()
    }

    pub(crate) fn add_new(&mut self, tree: Tree) {
        self.sets.push(ReplicaSet { tree, change: ReplicaSetChange::Create, before: 0 });
        self.new = Some(self.sets.len() - 1);
    }

    /// The sum of the replicas of all ReplicaSets.
    pub(super) fn total(&self) -> i64 {
        self.sets.iter().map(ReplicaSet::replicas).sum()
    }

    pub(super) fn available(&self) -> i64 {
        self.sets.iter().map(ReplicaSet::available).sum()
    }

    pub(super) fn replicas(&self) -> i64 {
        replicas(&self.deployment)
    }

    pub(crate) fn is_rolling(&self) -> bool {
        self.deployment.str("spec.strategy.type") == "RollingUpdate"
    }

    pub(crate) fn max_surge(&self) -> i64 {
        if self.is_rolling() { self.fenceposts().0 } else { 0 }
    }

    pub(crate) fn max_unavailable(&self) -> i64 {
        if self.is_rolling() { self.fenceposts().1.min(self.replicas()) } else { 0 }
    }

    /// maxSurge and maxUnavailable; never both 0, since the rollout could not proceed.
    fn fenceposts(&self) -> (i64, i64) {
        let share = |field: &str, round| {
            int_or_percent::scaled_value(
                self.deployment.at("spec.strategy.rollingUpdate").at(field),
                self.replicas(),
                round,
            )
            .unwrap_or_default()
        };
        match (share("maxSurge", Rounding::Up), share("maxUnavailable", Rounding::Down)) {
            (0, 0) => (0, 1),
            posts => posts,
        }
    }

    /// Sets the size of a ReplicaSet and the annotations with the Deployment's size.
    pub(super) fn resize(&mut self, at: usize, replicas: i64) {
        let (desired, max) = (self.replicas().to_string(), (self.replicas() + self.max_surge()).to_string());
        let set = &mut self.sets[at];
        if set.replicas() != replicas {
            set.tree.child("spec").set("replicas", replicas);
            set.touch();
        }
        set.annotate(DESIRED, &desired);
        set.annotate(MAX, &max);
    }

    /// Like `resize`, but does not change a ReplicaSet that already has the size.
    pub(crate) fn resize_if_other(&mut self, at: usize, replicas: i64) -> bool {
        let other = self.sets[at].replicas() != replicas;
        if other {
            self.resize(at, replicas);
        }
        other
    }
}

pub(super) fn replicas(object: &Tree) -> i64 {
    object.int("spec.replicas").unwrap_or_default()
}
