//! The allocation of a node's resources with the pod, used by several score plugins.

use api::Str;

use crate::snapshot::NodeState;
use podmodel::Spec;

/// A scored resource and its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weighted {
    pub name: Str,
    pub weight: i64,
}

pub(crate) fn weighted_default() -> Vec<Weighted> {
    ["cpu", "memory"].map(|name| Weighted { name: Str::const_new(name), weight: 1 }).to_vec()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Positive.
    pub offered: i64,
    pub taken: i64,
}

impl Allocation {
    /// With defaults for pods without requests. None for resources that the node does not have, and for special
    /// resources that the pod does not request.
    pub(crate) fn assumed(spec: &Spec, node: &NodeState, name: &str) -> Option<Allocation> {
        let taken = match name {
            "cpu" => node.nonzero_milli_cpu + spec.nonzero_milli_cpu,
            "memory" => node.nonzero_memory + spec.nonzero_memory,
            _ => return Allocation::requested(spec, node, name),
        };
        Allocation::new(node.node.allocatable.get(name), taken)
    }

    /// With the requests of pods.
    pub(crate) fn requested(spec: &Spec, node: &NodeState, name: &str) -> Option<Allocation> {
        let desired = spec.requests.get(name);
        if desired == 0 && !matches!(name, "cpu" | "memory" | "ephemeral-storage") {
            return None;
        }
        Allocation::new(node.node.allocatable.get(name), node.requested.get(name) + desired)
    }

    fn new(offered: i64, taken: i64) -> Option<Allocation> {
        (offered > 0).then_some(Allocation { offered, taken })
    }
}
