//! Nodes that count for a constraint. Without node selector and taints these are all nodes with the keys; otherwise
//! each node is evaluated once, and again when it has changed.

use std::sync::Arc;

use stdx::sync::Mutex;

use crate::framework::Cycle;
use crate::plugins::taint_toleration::tolerates;
use crate::snapshot::{NodeId, Snapshot};
use podmodel::{Node, Policy, Spec, SpreadConstraint};

/// The maximum number of cached results.
const MOST: usize = 32;

#[derive(Default)]
pub(crate) struct EligibleNodes(Mutex<Vec<CachedEligibility>>);

struct CachedEligibility {
    spec: Arc<Spec>,
    honors: Honors,
    nodes_generation: u64,
    nodes: Arc<Vec<bool>>,
}

/// The inclusion policies and what they depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Honors {
    affinity: bool,
    taints: bool,
}

/// All nodes, or those whose slots are true.
#[derive(Clone)]
pub(crate) enum Eligible {
    All,
    Some(Arc<Vec<bool>>),
}

impl Eligible {
    pub(super) fn has(&self, node: NodeId) -> bool {
        match self {
            Eligible::All => true,
            Eligible::Some(nodes) => nodes.get(node.at()).copied().unwrap_or(false),
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Eligible::All)
    }
}

impl EligibleNodes {
    pub(super) fn of(&self, cycle: Cycle, constraint: &SpreadConstraint) -> Eligible {
        let spec = &cycle.pod.spec;
        let honors = Honors {
            affinity: constraint.node_affinity_policy == Policy::Honor
                && (spec.node_affinity.is_some() || !spec.node_selector.is_empty()),
            taints: constraint.node_taints_policy == Policy::Honor,
        };
        if !honors.affinity && !honors.taints {
            return Eligible::All;
        }
        let mut known = self.0.lock();
        let generation = cycle.snapshot.nodes_generation();
        let same = |one: &CachedEligibility| {
            one.honors == honors && one.nodes_generation == generation && is_same(&one.spec, spec)
        };
        if let Some(at) = known.iter().position(same) {
            return Eligible::Some(known[at].nodes.clone());
        }
        let nodes = Arc::new(honors.nodes(cycle.snapshot, spec));
        if known.len() == MOST {
            known.remove(0);
        }
        known.push(CachedEligibility {
            spec: spec.clone(),
            honors,
            nodes_generation: generation,
            nodes: nodes.clone(),
        });
        Eligible::Some(nodes)
    }
}

fn is_same(one: &Arc<Spec>, other: &Arc<Spec>) -> bool {
    Arc::ptr_eq(one, other)
        || (one.node_affinity == other.node_affinity
            && one.node_selector == other.node_selector
            && one.tolerations == other.tolerations)
}

impl Honors {
    fn nodes(self, snapshot: &Snapshot, spec: &Spec) -> Vec<bool> {
        let mut nodes = vec![false; snapshot.slot_count()];
        for state in snapshot.nodes() {
            nodes[state.id.at()] = self.include(spec, &state.node);
        }
        nodes
    }

    fn include(self, spec: &Spec, node: &Node) -> bool {
        (!self.affinity || spec.selects(&node.name, &node.labels)) && (!self.taints || tolerates(spec, node))
    }
}
