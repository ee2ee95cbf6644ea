//! Which constraints a pod has: its own, or those of the profile with a selector made from what the pod
//! belongs to.

use api::{Str, Tree};

use crate::model::{
    Controller, Labels, Operator, Pod, Policy, Requirement, Selector, SpreadConstraint, WhenUnsatisfiable,
};
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
    let mut requirements = Vec::new();
    if !pod.labels.is_empty() {
        requirements.extend(of_services(snapshot, pod));
    }
    requirements.extend(pod.controller.iter().flat_map(|controller| of_controller(snapshot, pod, controller)));
    let selector = Selector::of(requirements);
    (!selector.is_everything()).then_some(selector)
}

fn of_services(snapshot: &Snapshot, pod: &Pod) -> Vec<Requirement> {
    let services = snapshot.objects.in_namespace(Kind::Service, &pod.namespace);
    let selectors = services.iter().map(|service| Labels::read(service.map("spec.selector")));
    let mine = selectors.filter(|labels| labels.iter().all(|(key, value)| pod.labels.has(key, value)));
    mine.flat_map(|labels| equal(&labels)).collect()
}

fn equal(labels: &Labels) -> Vec<Requirement> {
    labels.iter().map(|(key, value)| Requirement::new(key, Operator::In, vec![Str::new(value)])).collect()
}

fn of_controller(snapshot: &Snapshot, pod: &Pod, controller: &Controller) -> Vec<Requirement> {
    let kind = match controller.kind.as_str() {
        "ReplicationController" => Kind::ReplicationController,
        "ReplicaSet" => Kind::ReplicaSet,
        "StatefulSet" => Kind::StatefulSet,
        _ => return Vec::new(),
    };
    let object = snapshot.objects.get(kind, &format!("{}/{}", pod.namespace, controller.name));
    let selector = object.as_ref().map_or(&Tree::Null, |object| object.at("spec.selector"));
    match kind {
        Kind::ReplicationController => equal(&Labels::read(selector.as_map().unwrap_or(&api::Map::new()))),
        _ => Selector::read(selector).requirements().to_vec(),
    }
}
