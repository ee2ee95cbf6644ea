//! Filters nodes by free resources, and scores them by allocation.

use std::collections::BTreeSet;

use api::Str;

use super::allocation::{Allocation, Weighted, weighted_default};
use crate::framework::{Cycle, Event, MAX_SCORE, Plugin, Point, PreScore, Reason, Rejection, Slot, Verdict};
use crate::snapshot::{NodeId, NodeState};
use podmodel::{Node, Pod, Resources};

/// The scoring strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Prefers nodes with the most free resources.
    LeastAllocated,
    /// Prefers nodes with the least free resources.
    MostAllocated,
    /// Points of a line: utilization in percent and score, sorted.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

#[derive(Debug, Clone)]
pub(crate) struct NodeResourcesFit {
    pub strategy: Strategy,
    pub resources: Vec<Weighted>,
    /// Resources that the plugin ignores.
    pub ignored: BTreeSet<Str>,
    /// Ignored prefixes before the slash.
    pub ignored_groups: BTreeSet<Str>,
}

impl Default for NodeResourcesFit {
    fn default() -> NodeResourcesFit {
        NodeResourcesFit {
            strategy: Strategy::LeastAllocated,
            resources: weighted_default(),
            ignored: BTreeSet::new(),
            ignored_groups: BTreeSet::new(),
        }
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn is_local(&self) -> bool {
        true
    }

    fn filter(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> Verdict {
        let requests = &cycle.pod.spec.requests;
        let mut missing = InsufficientResources::default();
        if node.pods.len() as i64 + 1 > node.node.allowed_pods {
            missing.reasons.push("Too many pods".into());
        }
        if requests.is_zero() {
            return missing.verdict();
        }
        let (offered, taken) = (&node.node.allocatable, &node.requested);
        missing.check_resource("Insufficient cpu", requests.milli_cpu, taken.milli_cpu, offered.milli_cpu);
        missing.check_resource("Insufficient memory", requests.memory, taken.memory, offered.memory);
        let (wanted, storage) = (requests.ephemeral_storage, "Insufficient ephemeral-storage");
        missing.check_resource(storage, wanted, taken.ephemeral_storage, offered.ephemeral_storage);
        for (name, wanted) in requests.others.iter().filter(|(name, _)| !self.ignores(name)) {
            let (taken, offered) = (taken.get(name), offered.get(name));
            if offered == 0 && is_provided_by_devices(cycle, name) {
                continue;
            }
            if *wanted > 0 && *wanted > offered - taken {
                missing.check_resource(format!("Insufficient {name}"), *wanted, taken, offered);
            }
        }
        missing.verdict()
    }

    fn pre_score(&self, _cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        PreScore::Rate(Slot::default())
    }

    fn score(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> i64 {
        let all = self.resources.iter();
        let rated = all.filter_map(|one| Some((Allocation::assumed(&cycle.pod.spec, node, &one.name)?, one.weight)));
        match &self.strategy {
            Strategy::LeastAllocated => {
                weighted_mean(rated, |one| (one.offered - one.taken).max(0) * MAX_SCORE / one.offered)
            }
            Strategy::MostAllocated => weighted_mean(rated, |one| one.taken.min(one.offered) * MAX_SCORE / one.offered),
            Strategy::RequestedToCapacityRatio(points) => by_ratio(rated, points),
        }
    }

    fn may_help(&self, pod: &Pod, event: &Event) -> bool {
        match event {
            // Every deleted pod frees a pod slot.
            Event::PodDeleted(_) => true,
            Event::PodChanged { old, new } => shrinks(&old.spec.requests, &new.spec.requests),
            Event::SelfChanged { old, new } => shrinks(&old.spec.requests, &new.spec.requests),
            Event::NodeAdded(node) => self.could_fit(pod, node),
            Event::NodeChanged { old, new } => grows(pod, old, new) && self.could_fit(pod, new),
            _ => false,
        }
    }
}

impl NodeResourcesFit {
    fn ignores(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or("", |(group, _)| group);
        self.ignored.contains(name) || self.ignored_groups.contains(group)
    }

    fn could_fit(&self, pod: &Pod, node: &Node) -> bool {
        let (wanted, offered) = (&pod.spec.requests, &node.allocatable);
        node.allowed_pods > 0
            && wanted.milli_cpu <= offered.milli_cpu
            && wanted.memory <= offered.memory
            && wanted.ephemeral_storage <= offered.ephemeral_storage
            && wanted.others.iter().all(|(name, wanted)| self.ignores(name) || *wanted <= offered.get(name))
    }
}

fn shrinks(old: &Resources, new: &Resources) -> bool {
    let less = |name: &str| new.get(name) < old.get(name);
    less("cpu") || less("memory") || less("ephemeral-storage") || old.others.iter().any(|(name, _)| less(name))
}

/// Whether a node offers more of a resource that the pod requests.
fn grows(pod: &Pod, old: &Node, new: &Node) -> bool {
    let more = |name: &str, wanted: i64| wanted > 0 && new.allocatable.get(name) > old.allocatable.get(name);
    let wanted = &pod.spec.requests;
    new.allowed_pods > old.allowed_pods
        || more("cpu", wanted.milli_cpu)
        || more("memory", wanted.memory)
        || more("ephemeral-storage", wanted.ephemeral_storage)
        || wanted.others.iter().any(|(name, wanted)| more(name, *wanted))
}

/// A node that does not have a resource itself may have devices for it.
fn is_provided_by_devices(cycle: Cycle, name: &str) -> bool {
    devices::is_extended(name) && cycle.snapshot.devices.inventory.class_of_resource(name).is_some()
}

#[derive(Default)]
struct InsufficientResources {
    reasons: Vec<Reason>,
    /// More is requested than an empty node could provide.
    is_final: bool,
}

impl InsufficientResources {
    fn check_resource(&mut self, reason: impl Into<Reason>, wanted: i64, taken: i64, offered: i64) {
        if wanted > 0 && wanted > offered - taken {
            self.is_final |= wanted > offered;
            self.reasons.push(reason.into());
        }
    }

    fn verdict(self) -> Verdict {
        if self.reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection { is_final: self.is_final, is_error: false, reasons: self.reasons.into() })
    }
}

fn weighted_mean(rated: impl Iterator<Item = (Allocation, i64)>, rate: impl Fn(&Allocation) -> i64) -> i64 {
    let (sum, weights) =
        rated.fold((0, 0), |(sum, weights), (one, weight)| (sum + rate(&one) * weight, weights + weight));
    if weights == 0 { 0 } else { sum / weights }
}

/// Resources with score zero do not count.
fn by_ratio(rated: impl Iterator<Item = (Allocation, i64)>, points: &[(i64, i64)]) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for (one, weight) in rated {
        let taken = if one.taken > one.offered { MAX_SCORE } else { one.taken * MAX_SCORE / one.offered };
        let score = interpolate(points, taken);
        if score > 0 {
            sum += score * weight;
            weights += weight;
        }
    }
    if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
}

/// The value of a line at a position; constant outside of its points.
fn interpolate(points: &[(i64, i64)], at: i64) -> i64 {
    let Some(behind) = points.iter().position(|(x, _)| at <= *x) else { return points.last().map_or(0, |last| last.1) };
    if behind == 0 {
        return points[0].1;
    }
    let ((x0, y0), (x1, y1)) = (points[behind - 1], points[behind]);
    y0 + (y1 - y0) * (at - x0) / (x1 - x0)
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;
    use crate::testing::{TestCluster, node, pod};

    #[test]
    fn reports_insufficient_resources() {
        let mut world = TestCluster::new();
        let spec = |cpu: &str, memory: &str| tree! { "cpu" => cpu, "memory" => memory };
        world.node(node("n").allocatable("2", "1Gi", "2").with_allocatable("example.com/gpu", "1"));
        world.placed(pod("there").requests(spec("1", "512Mi")).on("n"));
        let cases = [
            (spec("1", "512Mi"), "", false),
            (spec("1100m", "1Mi"), "Insufficient cpu", false),
            (spec("3", "1Mi"), "Insufficient cpu", true),
            (spec("1100m", "600Mi"), "Insufficient cpu, Insufficient memory", false),
            (tree! { "example.com/gpu" => "1" }, "", false),
            (tree! { "example.com/gpu" => "2" }, "Insufficient example.com/gpu", true),
            (tree! { "ephemeral-storage" => "1" }, "Insufficient ephemeral-storage", true),
        ];
        for (requests, want, is_final) in cases {
            let verdict = world.filter(&NodeResourcesFit::default(), pod("p").requests(requests.clone()), "n");
            let rejection =
                verdict.err().unwrap_or(Rejection { is_final: false, is_error: false, reasons: Vec::new().into() });
            assert_eq!((rejection.reasons.join(", ").as_str(), rejection.is_final), (want, is_final), "{requests:?}");
        }
        world.placed(pod("other").on("n"));
        let verdict = world.filter(&NodeResourcesFit::default(), pod("p"), "n");
        assert_eq!(verdict, Err(Rejection::unschedulable("Too many pods")));
    }

    #[test]
    fn strategies_score_allocation() {
        let mut world = TestCluster::new();
        world.node(node("n").allocatable("4", "4Gi", "10"));
        world.placed(pod("there").requests(tree! { "cpu" => "1", "memory" => "1Gi" }).on("n"));
        let line = Strategy::RequestedToCapacityRatio(vec![(0, 0), (50, 100), (100, 0)]);
        for (strategy, want) in [(Strategy::LeastAllocated, 37), (Strategy::MostAllocated, 62), (line, 75)] {
            let plugin = NodeResourcesFit { strategy: strategy.clone(), ..NodeResourcesFit::default() };
            let pod_request = pod("p").requests(tree! { "cpu" => "1", "memory" => "2Gi" });
            assert_eq!(world.score(&plugin, pod_request, "n"), want, "{strategy:?}");
        }
    }

    #[test]
    fn lines_are_constant_outside() {
        let points = [(10, 5), (20, 15)];
        assert_eq!([0, 10, 15, 20, 30].map(|at| interpolate(&points, at)), [5, 5, 10, 15, 15]);
    }
}
