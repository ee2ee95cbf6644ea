//! Constraints on how pods are spread over domains.

use api::{Str, Tree};

use super::affinity::with_own;
use super::{Labels, Operator, Selector, texts};

/// Whether a spread constraint filters or only scores nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenUnsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
}

/// Whether nodes that a pod cannot go to count for its spreading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    Honor,
    Ignore,
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    pub max_skew: i64,
    pub topology_key: Str,
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// With the pod's own labels of `matchLabelKeys`.
    pub selector: Selector,
    pub min_domains: i64,
    pub node_affinity_policy: Policy,
    pub node_taints_policy: Policy,
}

impl SpreadConstraint {
    /// Reads a constraint; `labels` are those of its pod.
    pub fn read(constraint: &Tree, labels: &Labels) -> SpreadConstraint {
        let policy = |path: &str, default: Policy| match constraint.str(path) {
            "Honor" => Policy::Honor,
            "Ignore" => Policy::Ignore,
            _ => default,
        };
        let when_unsatisfiable = match constraint.str("whenUnsatisfiable") {
            "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
            _ => WhenUnsatisfiable::DoNotSchedule,
        };
        let keys = texts(constraint.list("matchLabelKeys"));
        let selector = Selector::read(constraint.at("labelSelector"));
        SpreadConstraint {
            max_skew: constraint.int("maxSkew").unwrap_or(1),
            topology_key: Str::new(constraint.str("topologyKey")),
            when_unsatisfiable,
            selector: with_own(selector, &keys, Operator::In, labels),
            min_domains: constraint.int("minDomains").unwrap_or(1),
            node_affinity_policy: policy("nodeAffinityPolicy", Policy::Honor),
            node_taints_policy: policy("nodeTaintsPolicy", Policy::Ignore),
        }
    }

    /// Whether the constraint filters nodes.
    pub fn is_hard(&self) -> bool {
        self.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule
    }
}
