//! Requests of pods and allocatable resources of nodes. CPU in thousandths, everything else in whole units.

use std::collections::BTreeMap;

use api::Tree;
use api::tree::Map;

use super::{Case, quantity};

/// Amounts of resources by name.
pub type Amounts = BTreeMap<String, i64>;

/// Assumed requests of containers without requests, for scoring.
const DEFAULTS: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024)];

/// The allocatable resources of a node.
pub fn allocatable(node: &Tree) -> Amounts {
    amounts(node.map("status.allocatable"))
}

/// The resource requests of a pod.
pub fn requests(pod: &Tree) -> Amounts {
    total(pod, &[])
}

/// Requests with defaults for containers without CPU or memory. With pod-level requests only for what no container
/// requests.
pub(crate) fn requests_nonzero(pod: &Tree) -> Amounts {
    let (whole, requested) = (pod.map("spec.resources.requests"), requests(pod));
    let counts = |name: &str| whole.is_empty() || requested.get(name).is_none_or(|amount| *amount == 0);
    let defaults: Vec<_> = DEFAULTS.into_iter().filter(|(name, _)| counts(name)).collect();
    total(pod, &defaults)
}

/// The requests of all pods on a node.
pub fn used(case: &Case<'_>, node: &Tree) -> Amounts {
    sum(case, node, requests)
}

pub(crate) fn used_nonzero(case: &Case<'_>, node: &Tree) -> Amounts {
    sum(case, node, requests_nonzero)
}

fn sum(case: &Case<'_>, node: &Tree, of: fn(&Tree) -> Amounts) -> Amounts {
    let mut all = Amounts::new();
    for pod in case.world.pods_on(node.str("metadata.name")) {
        add(&mut all, &of(pod));
    }
    all
}

fn amounts(map: &Map) -> Amounts {
    let amount = |name: &str, value: &Tree| {
        if name == "cpu" { quantity(value).milli_value() } else { quantity(value).value() }
    };
    map.iter().map(|(name, value)| (name.to_string(), amount(name, value))).collect()
}

fn add(all: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = all.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(all: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let most = all.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// Containers and sidecars run together; init containers run one after another beside the sidecars that have started.
fn total(pod: &Tree, defaults: &[(&str, i64)]) -> Amounts {
    let mut all = Amounts::new();
    for container in pod.list("spec.containers") {
        add(&mut all, &container_requests(pod, container, "containerStatuses", defaults));
    }
    let (mut staying, mut highest) = (Amounts::new(), Amounts::new());
    for container in pod.list("spec.initContainers") {
        let own = container_requests(pod, container, "initContainerStatuses", defaults);
        let mut now = staying.clone();
        add(&mut now, &own);
        if container.str("restartPolicy") == "Always" {
            add(&mut all, &own);
            staying = now.clone();
        }
        raise(&mut highest, &now);
    }
    raise(&mut all, &highest);
    let whole = amounts(pod.map("spec.resources.requests"));
    all.extend(whole.into_iter().filter(|(name, _)| is_pod_level(name)));
    add(&mut all, &amounts(pod.map("spec.overhead")));
    all
}

/// Resources that pod-level requests may have.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// A running container uses its actual resources until a resize is complete.
fn container_requests(pod: &Tree, container: &Tree, statuses: &str, defaults: &[(&str, i64)]) -> Amounts {
    let desired = amounts(container.map("resources.requests"));
    let path = format!("status.{statuses}");
    let is_own = |status: &&Tree| status.str("name") == container.str("name") && status.has("resources");
    let status = pod.list(&path).iter().find(is_own);
    let mut all = match status {
        Some(status) if is_infeasible(pod) => allocated_requests(status).unwrap_or(desired),
        Some(status) => {
            let mut all = desired;
            raise(&mut all, &allocated_requests(status).unwrap_or_default());
            all
        }
        None => desired,
    };
    for (name, amount) in defaults {
        all.entry(name.to_string()).or_insert(*amount);
    }
    all
}

fn allocated_requests(status: &Tree) -> Option<Amounts> {
    let mut all = amounts(status.map("resources.requests"));
    raise(&mut all, &amounts(status.map("allocatedResources")));
    (!all.is_empty()).then_some(all)
}

fn is_infeasible(pod: &Tree) -> bool {
    let refused =
        |condition: &Tree| condition.str("type") == "PodResizePending" && condition.str("reason") == "Infeasible";
    pod.list("status.conditions").iter().any(refused)
}
