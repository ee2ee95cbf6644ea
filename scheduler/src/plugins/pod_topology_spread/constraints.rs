//! Which constraints a pod has: its own, or those of the profile with a selector made from what the pod
//! belongs to.

use std::collections::BTreeMap;

use api::{Map, Str};

use crate::model::{Controller, Operator, Pod, Policy, Requirement, Selector, SpreadConstraint, WhenUnsatisfiable};
use crate::snapshot::{Kind, Question, Snapshot, Who};

pub const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

pub struct Defaults {
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
    pub fn of(constraints: Vec<SpreadConstraint>) -> Defaults {
        Defaults { constraints, is_system: false }
    }

    pub fn is_system(&self) -> bool {
        self.is_system
    }

    pub fn constraints(&self, snapshot: &Snapshot, pod: &Pod, is_hard: bool) -> Vec<SpreadConstraint> {
        if !pod.spec.spread.is_empty() {
            return pod.spec.spread.iter().filter(|one| one.is_hard() == is_hard).cloned().collect();
        }
        let of_kind: Vec<_> = self.constraints.iter().filter(|one| one.is_hard() == is_hard).collect();
        if of_kind.is_empty() {
            return Vec::new();
        }
        let Some(selector) = of_its_like(snapshot, pod) else { return Vec::new() };
        let with = |one: &SpreadConstraint| SpreadConstraint { selector: selector.clone(), ..one.clone() };
        of_kind.into_iter().map(with).collect()
    }
}

/// Pods that count for a constraint.
pub fn question(pod: &Pod, constraint: &SpreadConstraint) -> Question {
    let who = Who::of_namespace(&pod.namespace, constraint.selector.clone());
    Question { all: vec![who], with_terminating: false }
}

/// What selects the pod and others like it: its services and its controller. None where nothing does.
fn of_its_like(snapshot: &Snapshot, pod: &Pod) -> Option<Selector> {
    // A service without a selector means nobody, so that a pod without labels has none.
    let mut labels = if pod.labels.is_empty() { BTreeMap::new() } else { of_services(snapshot, pod) };
    let mut requirements = Vec::new();
    match pod.controller.as_ref().map_or(OfController::Nothing, |controller| of_controller(snapshot, pod, controller)) {
        OfController::Labels(more) => labels.extend(more),
        OfController::Selector(selector) => requirements.extend_from_slice(selector.requirements()),
        OfController::Nothing => {}
    }
    let equal = |(key, value): (Str, Str)| Requirement::new(&key, Operator::In, vec![value]);
    requirements.extend(labels.into_iter().map(equal));
    (!requirements.is_empty()).then(|| Selector::of(requirements))
}

fn of_services(snapshot: &Snapshot, pod: &Pod) -> BTreeMap<Str, Str> {
    let services = snapshot.objects.in_namespace(Kind::Service, &pod.namespace);
    let selectors = services.iter().map(|service| service.map("spec.selector"));
    let means = |selector: &&Map| selector.iter().all(|(key, value)| pod.labels.get(key) == value.as_str());
    selectors.filter(means).flat_map(pairs).collect()
}

fn pairs(labels: &Map) -> impl Iterator<Item = (Str, Str)> {
    labels.iter().map(|(key, value)| (Str::new(key), Str::new(value.as_str().unwrap_or(""))))
}

enum OfController {
    Nothing,
    /// They stand in for those that a service has under the same keys.
    Labels(BTreeMap<Str, Str>),
    Selector(Selector),
}

fn of_controller(snapshot: &Snapshot, pod: &Pod, controller: &Controller) -> OfController {
    let kind = match controller.kind.as_str() {
        "ReplicationController" => Kind::ReplicationController,
        "ReplicaSet" => Kind::ReplicaSet,
        "StatefulSet" => Kind::StatefulSet,
        _ => return OfController::Nothing,
    };
    let object = snapshot.objects.get(kind, &format!("{}/{}", pod.namespace, controller.name));
    match object {
        None => OfController::Nothing,
        Some(object) if kind == Kind::ReplicationController => {
            OfController::Labels(pairs(object.map("spec.selector")).collect())
        }
        Some(object) => OfController::Selector(Selector::read(object.at("spec.selector"))),
    }
}
