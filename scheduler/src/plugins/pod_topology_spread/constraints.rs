//! The constraints of a pod: its own, or the defaults of the profile with a selector derived from the pod's services
//! and owners.

use api::Str;

use crate::snapshot::{CountQuery, PodSelector, Snapshot};
use podmodel::{Pod, Policy, Selector, SpreadConstraint, WhenUnsatisfiable};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) struct Defaults {
    constraints: Vec<SpreadConstraint>,
    is_system: bool,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { constraints: vec![system(HOSTNAME, 3), system(ZONE, 5)], is_system: true }
    }
}

fn system(key: &str, max_skew: i64) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: Str::new(key),
        when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
        selector: Selector::nothing(),
        min_domains: 1,
        node_affinity_policy: Policy::Honor,
        node_taints_policy: Policy::Ignore,
    }
}

impl Defaults {
    pub(super) fn of(constraints: Vec<SpreadConstraint>) -> Defaults {
        Defaults { constraints, is_system: false }
    }

    pub(crate) fn is_system(&self) -> bool {
        self.is_system
    }

    pub(crate) fn constraints(&self, snapshot: &Snapshot, pod: &Pod, is_hard: bool) -> Vec<SpreadConstraint> {
        if !pod.spec.spread.is_empty() {
            return pod.spec.spread.iter().filter(|one| one.is_hard() == is_hard).cloned().collect();
        }
        let of_kind: Vec<_> = self.constraints.iter().filter(|one| one.is_hard() == is_hard).collect();
        if of_kind.is_empty() {
            return Vec::new();
        }
        let Some(selector) = snapshot.selectors.selector_of(pod) else { return Vec::new() };
        let with = |one: &SpreadConstraint| SpreadConstraint { selector: selector.clone(), ..one.clone() };
        of_kind.into_iter().map(with).collect()
    }
}

/// Pods that count for a constraint.
pub(super) fn query(pod: &Pod, constraint: &SpreadConstraint) -> CountQuery {
    let who = PodSelector::of_namespace(&pod.namespace, constraint.selector.clone());
    CountQuery { all: vec![who], with_terminating: false }
}
