//! Explains why pods are unschedulable: the result of every node by plugin, for a limited number of pods; and
//! simulates pods that do not exist.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use api::{Str, Tree, tree};
use client::Key;

use crate::cycle::Decision;
use crate::framework::{Failure, Profile, Rejection};
use crate::snapshot::Snapshot;
use podmodel::Pod;

/// The total number of stored results; the oldest pods are dropped first.
const MOST_VERDICTS: usize = 500_000;

#[derive(Default)]
pub(crate) struct Records {
    records: BTreeMap<Key, Record>,
    /// Keys in write order, with their number at that time.
    order: VecDeque<(Key, u64)>,
    verdicts: usize,
    number: u64,
}

struct Record {
    number: u64,
    profile: Arc<Profile>,
    failure: Failure,
    /// Node names by slot at that time; most records share one.
    names: Arc<[Str]>,
}

impl Records {
    pub(crate) fn put(&mut self, pod: &Pod, profile: &Arc<Profile>, snapshot: &Snapshot, failure: Failure) {
        self.remove(&pod.key);
        self.number += 1;
        self.verdicts += failure.nodes.len();
        let record = Record { number: self.number, profile: profile.clone(), failure, names: snapshot.names() };
        self.records.insert(pod.key.clone(), record);
        self.order.push_back((pod.key.clone(), self.number));
        self.drop_oldest();
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(record) = self.records.remove(key) {
            self.verdicts -= record.failure.nodes.len();
        }
    }

    /// Also drops entries of removed records from the order.
    fn drop_oldest(&mut self) {
        while self.verdicts > MOST_VERDICTS || self.order.len() > 1024 + 2 * self.records.len() {
            let Some((key, number)) = self.order.pop_front() else { return };
            if self.records.get(&key).is_some_and(|record| record.number == number) {
                if self.verdicts > MOST_VERDICTS {
                    self.remove(&key);
                } else {
                    self.order.push_back((key, number));
                }
            }
        }
    }

    /// The record of an unschedulable pod.
    pub(crate) fn get(&self, key: &str) -> Option<Tree> {
        let record = self.records.get(key)?;
        Some(explain(&record.failure, &record.profile, &record.names))
    }
}

/// The result of a decision.
pub(crate) fn decided(decision: &Decision, profile: &Profile, snapshot: &Snapshot) -> Tree {
    let name = |id| snapshot.node(id).map_or("", |state| state.name()).to_string();
    match decision {
        Decision::Place { node, evaluated, feasible } => tree! {
            "node" => name(*node),
            "nodesEvaluated" => i64::try_from(*evaluated).unwrap_or(i64::MAX),
            "nodesFeasible" => i64::try_from(*feasible).unwrap_or(i64::MAX),
        },
        Decision::Wait { failure, preemption, .. } => {
            let mut explanation = explain(failure, profile, &snapshot.names());
            if let Some(preemption) = preemption {
                let victims = preemption.victims.iter().map(|victim| Tree::from(&*victim.key)).collect::<Vec<_>>();
                explanation.set("preemption", tree! { "node" => name(preemption.node), "victims" => victims });
            }
            explanation
        }
    }
}

fn explain(failure: &Failure, profile: &Profile, names: &[Str]) -> Tree {
    let verdict = |position: usize, rejection: &Rejection| {
        let reasons: Vec<Tree> = rejection.reasons.iter().map(|reason| Tree::from(reason.as_ref())).collect();
        tree! { "plugin" => profile.plugin(position).name(), "reasons" => reasons, "preemptionMayHelp" => !rejection.is_final }
    };
    let mut nodes: Vec<Tree> = failure
        .by_node()
        .filter_map(|(id, position, rejection)| {
            let mut one = verdict(position, rejection);
            one.set("node", names.get(id.at())?.clone());
            Some(one)
        })
        .collect();
    nodes.sort_by(|one, other| one.str("node").cmp(other.str("node")));
    let mut explanation = tree! { "message" => failure.message(), "nodes" => nodes };
    if let Some((position, rejection)) = &failure.for_all_nodes {
        explanation.set("allNodes", verdict(*position, rejection));
    }
    if let Some((count, reason)) = failure.excluded() {
        explanation
            .set("otherNodes", tree! { "count" => i64::try_from(count).unwrap_or(i64::MAX), "reason" => reason });
    }
    explanation
}
