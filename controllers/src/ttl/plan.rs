//! The TTL of secrets and config maps in kubelet caches: the larger the cluster, the longer. Steps overlap, so that a
//! cluster at a boundary does not update all nodes repeatedly.

use api::{Tree, tree};

pub(super) const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

struct TtlBoundary {
    from: usize,
    to: usize,
    seconds: u32,
}

static STEPS: [TtlBoundary; 6] = [
    TtlBoundary { from: 0, to: 100, seconds: 0 },
    TtlBoundary { from: 90, to: 500, seconds: 15 },
    TtlBoundary { from: 450, to: 1000, seconds: 30 },
    TtlBoundary { from: 900, to: 2000, seconds: 60 },
    TtlBoundary { from: 1800, to: 10000, seconds: 300 },
    TtlBoundary { from: 9000, to: usize::MAX, seconds: 600 },
];

/// The current step of the cluster size.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct ClusterSize {
    step: usize,
}

impl ClusterSize {
    pub(super) fn follow(self, nodes: usize) -> ClusterSize {
        let mut step = self.step;
        while nodes > STEPS[step].to && step + 1 < STEPS.len() {
            step += 1;
        }
        while nodes < STEPS[step].from && step > 0 {
            step -= 1;
        }
        ClusterSize { step }
    }

    /// The annotation to merge into a node; None if it is up to date.
    pub(super) fn patch(self, node: &Tree) -> Option<Tree> {
        let desired = STEPS[self.step].seconds.to_string();
        (node.map("metadata.annotations").str(ANNOTATION) != desired)
            .then(|| tree! { "metadata" => tree! { "annotations" => tree! { ANNOTATION => desired } } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_hysteresis() {
        let mut size = ClusterSize::default();
        let mut check = |nodes: usize, seconds: &str| {
            size = size.follow(nodes);
            let annotations = tree! { ANNOTATION => seconds };
            let node = tree! { "metadata" => tree! { "annotations" => annotations } };
            assert_eq!(size.patch(&node), None, "{nodes} nodes");
            assert!(size.patch(&tree! {}).is_some());
        };
        check(1, "0");
        check(100, "0");
        check(101, "15");
        check(95, "15");
        check(89, "0");
        check(3000, "300");
        check(20_000, "600");
        check(0, "0");
    }
}
