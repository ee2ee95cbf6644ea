//! Plans which pods of a DaemonSet are created and deleted, and its status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::time::Timestamp;
use api::{Tree, tree};

use super::pod::{self, NodeFit};
use crate::support::int_or_percent::{self, Rounding};
use crate::support::pods::{self, is_terminating};

/// The maximum number of creations or deletions per sync.
const BURST: usize = 250;

pub(super) struct ObservedState<'a> {
    pub set: &'a Tree,
    pub nodes: &'a [Arc<Tree>],
    /// Whether each node should run a pod.
    pub fits: &'a [NodeFit],
    /// The pods controlled by the set.
    pub pods: &'a [Arc<Tree>],
    /// The hash of the revision that pods are updated to.
    pub hash: &'a str,
    pub now: Timestamp,
}

/// An event about a finished pod.
#[derive(Debug, PartialEq)]
pub(super) struct FinishedPod {
    pub pod: Arc<Tree>,
    pub failed: bool,
    pub node: String,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Names of the nodes that need a pod.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Tree>>,
    pub ended: Vec<FinishedPod>,
    pub again: Option<Duration>,
}

/// The pods of each node, oldest first. Nodes without pods are not included.
pub(crate) type PodsByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Tree>>>;

/// The new and the old pod of a node.
type PodPair<'a> = (Option<&'a Arc<Tree>>, Option<&'a Arc<Tree>>);

/// `wait` returns the remaining backoff for the replacement of a failed pod on a node.
pub(super) fn plan(observed: &ObservedState<'_>, wait: impl FnMut(&str) -> Option<Duration>) -> Plan {
    let mut plan = observed.manage(wait);
    let is_rolling = observed.set.str("spec.updateStrategy.type") == "RollingUpdate";
    if plan.create.is_empty() && plan.delete.is_empty() && is_rolling {
        observed.roll(&mut plan);
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan.again = earlier(plan.again, observed.next_available());
    plan
}

fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

impl<'a> ObservedState<'a> {
    pub(super) fn by_node(&self) -> PodsByNode<'a> {
        let mut by_node: PodsByNode<'a> = BTreeMap::new();
        for there in self.pods.iter().filter(|there| !(pods::is_terminal(there) && is_terminating(there))) {
            by_node.entry(pod::target(there)).or_default().push(there);
        }
        let order = |there: &Arc<Tree>| {
            let metadata = there.at("metadata");
            let waits = there.str("spec.nodeName").is_empty();
            (waits, metadata.str("creationTimestamp").to_string(), metadata.str("name").to_string())
        };
        by_node.values_mut().for_each(|pods| pods.sort_by_cached_key(|there| order(there)));
        by_node
    }

    /// One pod on each node that should run one, none on other nodes.
    fn manage(&self, mut wait: impl FnMut(&str) -> Option<Duration>) -> Plan {
        let mut plan = Plan::default();
        let mut by_node = self.by_node();
        for (node, fit) in self.nodes.iter().zip(self.fits) {
            let name = node.str("metadata.name");
            match by_node.remove(name) {
                None if fit.should_run => plan.create.push(name.to_string()),
                None => {}
                Some(there) if fit.should_continue_running => {
                    self.keep(&mut plan, name, &there, fit.should_run, &mut wait)
                }
                Some(there) => plan.delete.extend(there.into_iter().filter(|there| !is_terminating(there)).cloned()),
            }
        }
        // Unscheduled pods of deleted nodes are deleted here; the pod garbage collector deletes scheduled ones.
        let homeless = by_node.into_values().flatten().filter(|there| there.str("spec.nodeName").is_empty());
        plan.delete.extend(homeless.filter(|there| !is_terminating(there)).cloned());
        plan
    }

    fn keep(
        &self,
        plan: &mut Plan,
        node: &str,
        there: &[&Arc<Tree>],
        should_run: bool,
        wait: &mut impl FnMut(&str) -> Option<Duration>,
    ) {
        let mut running = Vec::new();
        for pod in there.iter().copied().filter(|pod| !is_terminating(pod)) {
            let failed = pod.str("status.phase") == "Failed";
            if !pods::is_terminal(pod) {
                running.push(pod);
            } else if let Some(pause) = failed.then(|| wait(node)).flatten() {
                plan.again = earlier(plan.again, Some(pause));
            } else {
                plan.ended.push(FinishedPod { pod: pod.clone(), failed, node: node.to_string() });
                plan.delete.push(pod.clone());
            }
        }
        if !self.surges() {
            plan.delete.extend(running.into_iter().skip(1).cloned());
        } else if running.is_empty() && should_run {
            plan.create.push(node.to_string());
        } else {
            plan.delete.extend(self.beyond_surge(&running));
        }
    }

    fn surges(&self) -> bool {
        self.most("maxSurge", 1).is_some_and(|most| most > 0)
            && self.set.str("spec.updateStrategy.type") == "RollingUpdate"
    }

    /// While surging, a node may have an old pod that is available and a new one that is not yet.
    fn beyond_surge(&self, running: &[&Arc<Tree>]) -> Vec<Arc<Tree>> {
        let (new, old): (Vec<&Arc<Tree>>, Vec<&Arc<Tree>>) =
            running.iter().partition(|there| there.map("metadata.labels").str(pod::HASH) == self.hash);
        let mut delete: Vec<Arc<Tree>> =
            new.iter().skip(1).chain(old.iter().skip(1)).map(|there| (*there).clone()).collect();
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!pods::is_ready(old) || self.is_available(new))
        {
            delete.push((*old).clone());
        }
        delete
    }

    /// A number or percentage of the nodes that should run a pod.
    fn most(&self, field: &str, nodes: i64) -> Option<i64> {
        int_or_percent::scaled_value(self.set.at("spec.updateStrategy.rollingUpdate").at(field), nodes, Rounding::Up)
    }

    fn is_available(&self, there: &Tree) -> bool {
        pods::is_available(there, self.set.int("spec.minReadySeconds").unwrap_or_default(), self.now.seconds)
    }

    /// Deletes old pods within `maxUnavailable`; `manage` creates their replacements.
    fn roll(&self, plan: &mut Plan) {
        let mut by_node = self.by_node();
        let wanted: Vec<&str> = self.wanted().map(|node| node.str("metadata.name")).collect();
        for node in &wanted {
            by_node.entry(node).or_default();
        }
        let count = wanted.len() as i64;
        let (surge, unavailable) =
            (self.most("maxSurge", count).unwrap_or_default(), self.most("maxUnavailable", count));
        if surge > 0 {
            return self.roll_with_surge(plan, &by_node, surge);
        }
        let unavailable = unavailable.unwrap_or(1);
        self.roll_in_place(plan, &by_node, if unavailable == 0 { 1 } else { unavailable });
    }

    fn wanted(&self) -> impl Iterator<Item = &'a Arc<Tree>> {
        self.nodes.iter().zip(self.fits).filter(|(_, fit)| fit.should_run).map(|(node, _)| node)
    }

    /// The new and old pod of a node; None if `manage` must clean up first.
    fn on_node<'b>(&self, there: &[&'b Arc<Tree>]) -> Option<PodPair<'b>> {
        let living = there.iter().copied().filter(|there| !is_terminating(there));
        let (new, old): (Vec<&Arc<Tree>>, Vec<&Arc<Tree>>) =
            living.partition(|there| pod::is_updated(self.set, there, self.hash));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    fn roll_in_place(&self, plan: &mut Plan, by_node: &PodsByNode<'_>, most: i64) {
        let mut lost = 0;
        let mut candidates = Vec::new();
        for there in by_node.values() {
            match self.on_node(there) {
                Some((Some(new), None)) => lost += i64::from(!self.is_available(new)),
                // An unavailable old pod may be replaced at once, but its node counts as unavailable either way.
                Some((None, Some(old))) if !self.is_available(old) => {
                    lost += 1;
                    plan.delete.push(old.clone());
                }
                Some((None, Some(old))) => candidates.push(old.clone()),
                _ => lost += 1,
            }
        }
        candidates.truncate(usize::try_from(most - lost).unwrap_or_default());
        plan.delete.extend(candidates);
    }

    /// Creates a new pod before its old one is deleted. Old pods on nodes that should no longer run one stay until
    /// enough pods are available elsewhere.
    fn roll_with_surge(&self, plan: &mut Plan, by_node: &PodsByNode<'_>, most: i64) {
        let (mut surging, mut serving) = (0, 0);
        let mut candidates = Vec::new();
        let mut leaving = Vec::new();
        let wanted: BTreeSet<&str> = self.wanted().map(|node| node.str("metadata.name")).collect();
        for (node, there) in by_node {
            let Some((new, old)) = self.on_node(there) else {
                surging += 1;
                continue;
            };
            let serves = old.or(new).is_some_and(|first| self.is_available(first));
            serving += i64::from(serves);
            match (new, old) {
                (_, None) => {}
                (None, Some(_)) if wanted.contains(node) && serves => candidates.push(node.to_string()),
                (None, Some(_)) if wanted.contains(node) => plan.create.push(node.to_string()),
                (None, Some(old)) if serves => leaving.push(old.clone()),
                (Some(new), Some(_)) if !self.is_available(new) => surging += 1,
                (_, Some(old)) => plan.delete.push(old.clone()),
            }
        }
        candidates.truncate(usize::try_from(most - surging).unwrap_or_default());
        plan.create.extend(candidates);
        leaving.truncate(usize::try_from(serving - wanted.len() as i64).unwrap_or_default());
        plan.delete.extend(leaving);
    }

    fn next_available(&self) -> Option<Duration> {
        let min_ready = self.set.int("spec.minReadySeconds").unwrap_or_default();
        pods::next_available(self.pods, min_ready, self.now.seconds)
    }
}

pub(super) fn status(observed: &ObservedState<'_>) -> Tree {
    let by_node = observed.by_node();
    let [mut desired, mut current, mut misscheduled, mut ready, mut available, mut updated] = [0i64; 6];
    for (node, fit) in observed.nodes.iter().zip(observed.fits) {
        let oldest = by_node.get(node.str("metadata.name")).and_then(|there| there.first());
        if !fit.should_run {
            misscheduled += i64::from(oldest.is_some());
            continue;
        }
        desired += 1;
        let Some(oldest) = oldest else { continue };
        current += 1;
        ready += i64::from(pods::is_ready(oldest));
        available += i64::from(observed.is_available(oldest));
        updated += i64::from(pod::is_updated(observed.set, oldest, observed.hash));
    }
    let mut status = tree! {
        "currentNumberScheduled" => current,
        "numberMisscheduled" => misscheduled,
        "desiredNumberScheduled" => desired,
        "numberReady" => ready,
    };
    for (field, value) in [
        ("observedGeneration", observed.set.int("metadata.generation").unwrap_or_default()),
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", desired - available),
    ] {
        if value != 0 {
            status.set(field, value);
        }
    }
    for field in ["collisionCount", "conditions"] {
        if let Some(value) = observed.set.at("status").get(field) {
            status.set(field, value.clone());
        }
    }
    status
}

#[cfg(test)]
mod tests;
