//! What a container may use, and how soon it is sacrificed; and which of the three classes of service a pod is in.

use std::time::Duration;

use api::quantity::{Format, Quantity};
use api::{Tree, tree};

use super::memory;
use crate::model::pod;

/// Of the node and its agent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Bytes of the machine.
    pub memory: i64,
    pub cfs_quota: bool,
    pub cfs_period: Duration,
    pub rules: memory::Rules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Class {
    /// As the API has it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Guaranteed => "Guaranteed",
            Class::Burstable => "Burstable",
            Class::BestEffort => "BestEffort",
        }
    }
}

const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
const MIN_QUOTA: i64 = 1000;
/// How soon a process is sacrificed, from -1000 to 1000.
const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;
/// From here on a pod belongs to the cluster itself.
const SYSTEM_PRIORITY: i64 = 2_000_000_000;

/// The class that the API wrote, or what follows from the containers of a static pod.
pub fn class(pod: &Tree) -> Class {
    match pod.str("status.qosClass") {
        "Guaranteed" => Class::Guaranteed,
        "Burstable" => Class::Burstable,
        "BestEffort" => Class::BestEffort,
        _ => derived_class(pod),
    }
}

fn derived_class(pod: &Tree) -> Class {
    let own = pod.at("spec.resources");
    let of_containers = || pod::LISTS[..2].iter().flat_map(|list| pod.list(list)).map(|spec| spec.at("resources"));
    let all: Vec<&Tree> = if own.is_null() { of_containers().collect() } else { vec![own] };
    let amounts = |kind: &str, resources: &Tree| -> Vec<i64> {
        ["cpu", "memory"].iter().map(|name| milli(resources.at(kind).at(name))).collect()
    };
    let nothing = |resources: &&Tree| {
        ["requests", "limits"].iter().all(|kind| amounts(kind, resources).iter().all(|amount| *amount == 0))
    };
    if all.iter().all(nothing) {
        return Class::BestEffort;
    }
    let is_full = |resources: &&Tree| {
        let limits = amounts("limits", resources);
        limits.iter().all(|limit| *limit > 0) && limits == amounts("requests", resources)
    };
    if all.iter().all(is_full) { Class::Guaranteed } else { Class::Burstable }
}

pub fn milli(value: &Tree) -> i64 {
    parse(value).map_or(0, |quantity| quantity.milli_value())
}

pub fn amount(value: &Tree) -> i64 {
    parse(value).map_or(0, |quantity| quantity.value())
}

fn parse(value: &Tree) -> Option<Quantity> {
    match value.as_int() {
        Some(whole) => Quantity::parse(&whole.to_string()).ok(),
        None => Quantity::parse(value.as_str()?).ok(),
    }
}

/// What the runtime enforces for a container.
pub fn of_container(pod: &Tree, spec: &Tree, limits: Limits) -> cri::LinuxContainerResources {
    let resources = spec.at("resources");
    let mut linux = cpu_and_memory(resources, limits);
    linux.oom_score_adj = oom_score(pod, spec, limits.memory);
    linux.hugepage_limits = hugepages(resources);
    memory::limit(pod, spec, limits, &mut linux);
    linux
}

/// What the containers of a pod have together, and what its runtime adds to that: the runtime may size a sandbox by it.
pub fn of_sandbox(pod: &Tree, limits: Limits) -> (cri::LinuxContainerResources, Option<cri::LinuxContainerResources>) {
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
pub fn cpu_and_memory(resources: &Tree, limits: Limits) -> cri::LinuxContainerResources {
    let limit = milli(resources.at("limits.cpu"));
    let asked = resources.at("requests.cpu");
    let request = if asked.is_null() { limit } else { milli(asked) };
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

/// The weight of so many thousandths of a core.
pub fn shares(milli: i64) -> i64 {
    (milli * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// The time of each period that so many thousandths of a core are.
pub fn quota(milli: i64, period: i64) -> i64 {
    (milli * period / 1000).max(MIN_QUOTA)
}

fn oom_score(pod: &Tree, spec: &Tree, capacity: i64) -> i64 {
    let is_critical = pod.int("spec.priority").is_some_and(|priority| priority >= SYSTEM_PRIORITY)
        || pod::is_static(pod) && pod::annotation(pod, pod::SOURCE) == "file";
    match class(pod) {
        _ if is_critical => GUARANTEED,
        Class::Guaranteed => GUARANTEED,
        Class::BestEffort => BEST_EFFORT,
        Class::Burstable if pod::is_sidecar(spec) => {
            // One that others need goes no sooner than they.
            let main = pod.list("spec.containers").iter().map(|spec| by_request(spec, capacity));
            main.chain([by_request(spec, capacity)]).min().unwrap_or(BEST_EFFORT)
        }
        Class::Burstable => by_request(spec, capacity),
    }
}

/// Whoever asks for much has the right to it.
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

/// The kernel's files are called after sizes like 2MB.
pub fn page_size(bytes: i64) -> String {
    let text = Quantity::new(bytes, Format::BinarySI).to_string();
    format!("{}B", text.strip_suffix('i').unwrap_or(&text))
}
