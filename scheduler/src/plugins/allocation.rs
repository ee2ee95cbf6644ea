//! How much of a resource of a node would be taken with a pod there. Several plugins rate by that.

use api::Str;

use crate::model::Spec;
use crate::snapshot::NodeState;

/// A resource that is rated, and how much it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighted {
    pub name: Str,
    pub weight: i64,
}

pub fn weighted_default() -> Vec<Weighted> {
    ["cpu", "memory"].map(|name| Weighted { name: Str::const_new(name), weight: 1 }).to_vec()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// More than nothing.
    pub offered: i64,
    pub taken: i64,
}

impl Allocation {
    /// With what pods that say nothing are taken to need. None for what the node has not, or what the pod
    /// does not ask for besides CPU and memory.
    pub fn assumed(spec: &Spec, node: &NodeState, name: &str) -> Option<Allocation> {
        let taken = match name {
            "cpu" => node.nonzero_milli_cpu + spec.nonzero_milli_cpu,
            "memory" => node.nonzero_memory + spec.nonzero_memory,
            _ => return Allocation::requested(spec, node, name),
        };
        Allocation::new(node.node.allocatable.get(name), taken)
    }

    /// With what pods ask for.
    pub fn requested(spec: &Spec, node: &NodeState, name: &str) -> Option<Allocation> {
        let wanted = spec.requests.get(name);
        if wanted == 0 && !matches!(name, "cpu" | "memory" | "ephemeral-storage") {
            return None;
        }
        Allocation::new(node.node.allocatable.get(name), node.requested.get(name) + wanted)
    }

    fn new(offered: i64, taken: i64) -> Option<Allocation> {
        (offered > 0).then_some(Allocation { offered, taken })
    }
}
