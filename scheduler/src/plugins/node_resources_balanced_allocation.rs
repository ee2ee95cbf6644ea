//! Prefers nodes whose resources become more evenly allocated.

use super::allocation::{Allocation, Weighted, weighted_default};
use crate::framework::{Cycle, MAX_SCORE, Plugin, Point, PreScore, Slot};
use crate::snapshot::{NodeId, NodeState};

#[derive(Debug, Clone)]
pub(crate) struct NodeResourcesBalancedAllocation {
    pub resources: Vec<Weighted>,
}

impl Default for NodeResourcesBalancedAllocation {
    fn default() -> NodeResourcesBalancedAllocation {
        NodeResourcesBalancedAllocation { resources: weighted_default() }
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    fn is_local(&self) -> bool {
        true
    }

    /// Pods without requests would all go to the currently balanced node.
    fn pre_score(&self, cycle: Cycle, _slot: &Slot, _nodes: &[NodeId]) -> PreScore {
        let requests_any = self.resources.iter().any(|one| cycle.pod.spec.requests.get(&one.name) > 0);
        if requests_any { PreScore::Rate(Slot::default()) } else { PreScore::Skip }
    }

    fn score(&self, cycle: Cycle, _slot: &Slot, node: &NodeState) -> i64 {
        let spec = &cycle.pod.spec;
        let all = self.resources.iter();
        let all: Vec<(Allocation, i64)> = all
            .filter_map(|one| Some((Allocation::requested(spec, node, &one.name)?, spec.requests.get(&one.name))))
            .collect();
        let with = balance(all.iter().map(|(one, _)| (one.taken, one.offered)));
        let without = balance(all.iter().map(|(one, wanted)| (one.taken - wanted, one.offered)));
        // The middle is no change; a better balance scores higher, a worse one lower.
        let half = MAX_SCORE / 2;
        half + (half + with - without) / 2
    }
}

fn balance(parts: impl Iterator<Item = (i64, i64)>) -> i64 {
    let shares: Vec<f64> = parts.map(|(taken, offered)| (taken as f64 / offered as f64).min(1.0)).collect();
    ((1.0 - deviation(&shares)) * MAX_SCORE as f64) as i64
}

fn deviation(shares: &[f64]) -> f64 {
    match shares {
        [] | [_] => 0.0,
        [one, other] => ((one - other) / 2.0).abs(),
        _ => {
            let count = shares.len() as f64;
            let mean = shares.iter().sum::<f64>() / count;
            let squares: f64 = shares.iter().map(|share| (share - mean) * (share - mean)).sum();
            (squares / count).sqrt()
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;
    use crate::testing::{TestCluster, node, pod};

    #[test]
    fn scores_balance() {
        let mut world = TestCluster::new();
        world.node(node("n").allocatable("4", "4Gi", "10"));
        let cases = [("1", "1Gi", 75), ("4", "1Gi", 56), ("2", "1Gi", 68)];
        for (cpu, memory, want) in cases {
            let requesting = pod("p").requests(tree! { "cpu" => cpu, "memory" => memory });
            assert_eq!(
                world.score(&NodeResourcesBalancedAllocation::default(), requesting, "n"),
                want,
                "{cpu} {memory}"
            );
        }
        assert_eq!(deviation(&[0.0, 0.5, 1.0]), (0.5f64 / 3.0).sqrt());
    }
}
