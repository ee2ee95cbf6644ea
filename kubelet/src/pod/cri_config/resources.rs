//! Resource limits and OOM scores of containers.

use std::time::Duration;

use api::quantity::{Format, Quantity};
use api::{Tree, tree};

use super::memory;
use crate::model::pod;
use crate::model::resources::{Class, amount, class, milli, page_size, quota, shares};

/// Of the node and its kubelet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Bytes of the machine.
    pub(crate) memory: i64,
    pub(crate) cfs_quota: bool,
    pub(crate) cfs_period: Duration,
    pub(crate) rules: memory::Rules,
}

/// How soon a process is sacrificed, from -1000 to 1000.
const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;
/// From here on a pod belongs to the cluster itself.
const SYSTEM_PRIORITY: i64 = 2_000_000_000;

/// The resources that the runtime enforces for a container.
pub(crate) fn of_container(pod: &Tree, spec: &Tree, limits: Limits) -> cri::LinuxContainerResources {
    let resources = spec.at("resources");
    let mut linux = cpu_and_memory(resources, limits);
    linux.oom_score_adj = oom_score(pod, spec, limits.memory);
    linux.hugepage_limits = hugepages(resources);
    memory::limit(pod, spec, limits, &mut linux);
    linux
}

/// The resources of a pod's containers together, and the overhead: a runtime may size a sandbox by them.
pub(crate) fn of_sandbox(
    pod: &Tree,
    limits: Limits,
) -> (cri::LinuxContainerResources, Option<cri::LinuxContainerResources>) {
    let mut bare = tree! { "spec" => pod.at("spec").clone() };
    bare.child("spec").remove("overhead");
    let listed = |amounts: podmodel::Resources| {
        let cpu = Quantity::milli(amounts.milli_cpu, Format::DecimalSI).to_string();
        let memory = Quantity::new(amounts.memory, Format::BinarySI).to_string();
        tree! { "cpu" => cpu, "memory" => memory }
    };
    let sum = tree! { "requests" => listed(podmodel::requests(&bare)), "limits" => listed(podmodel::limits(&bare)) };
    let overhead = pod.at("spec").get("overhead");
    let overhead = overhead.map(|more| tree! { "requests" => more.clone(), "limits" => more.clone() });
    (cpu_and_memory(&sum, limits), overhead.map(|overhead| cpu_and_memory(&overhead, limits)))
}

/// Weight, quota and memory of one set of requests and limits.
pub(crate) fn cpu_and_memory(resources: &Tree, limits: Limits) -> cri::LinuxContainerResources {
    let limit = milli(resources.at("limits.cpu"));
    let requested = resources.at("requests.cpu");
    let request = if requested.is_null() { limit } else { milli(requested) };
    let period = i64::try_from(limits.cfs_period.as_micros()).unwrap_or(100_000);
    let quota = if limits.cfs_quota && limit > 0 { quota(limit, period) } else { 0 };
    cri::LinuxContainerResources {
        cpu_shares: shares(request),
        cpu_period: period,
        cpu_quota: quota,
        memory_limit_in_bytes: amount(resources.at("limits.memory")),
        ..Default::default()
    }
}

fn oom_score(pod: &Tree, spec: &Tree, capacity: i64) -> i64 {
    let is_critical = pod.int("spec.priority").is_some_and(|priority| priority >= SYSTEM_PRIORITY)
        || pod::is_static(pod) && pod::annotation(pod, pod::SOURCE) == "file";
    match class(pod) {
        _ if is_critical => GUARANTEED,
        Class::Guaranteed => GUARANTEED,
        Class::BestEffort => BEST_EFFORT,
        Class::Burstable if pod::is_sidecar(spec) => {
            // A sidecar is not killed before the main containers that need it.
            let main = pod.list("spec.containers").iter().map(|spec| by_request(spec, capacity));
            main.chain([by_request(spec, capacity)]).min().unwrap_or(BEST_EFFORT)
        }
        Class::Burstable => by_request(spec, capacity),
    }
}

/// A larger request means a lower score.
fn by_request(spec: &Tree, capacity: i64) -> i64 {
    let request = amount(spec.at("resources.requests.memory"));
    let score = 1000 - request.saturating_mul(1000).checked_div(capacity).unwrap_or(0);
    score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
}

fn hugepages(resources: &Tree) -> Vec<cri::HugepageLimit> {
    let limits = resources.map("limits");
    let pages = limits.iter().filter_map(|(name, value)| Some((name.strip_prefix("hugepages-")?, value)));
    let limit = |(size, value): (&str, &Tree)| {
        let size = Quantity::parse(size).ok()?.value();
        Some(cri::HugepageLimit { page_size: page_size(size), limit: u64::try_from(amount(value)).unwrap_or(0) })
    };
    pages.filter_map(limit).collect()
}
