//! Amounts of resources as pods name them, and the three classes of service that follow from them.

use api::Tree;
use api::quantity::{Format, Quantity};

use super::pod;

const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
const MIN_QUOTA: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Class {
    /// The name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Guaranteed => "Guaranteed",
            Class::Burstable => "Burstable",
            Class::BestEffort => "BestEffort",
        }
    }
}

/// The class that the API wrote, or the class computed from the containers of a static pod.
pub(crate) fn class(pod: &Tree) -> Class {
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

pub(crate) fn milli(value: &Tree) -> i64 {
    parse(value).map_or(0, |quantity| quantity.milli_value())
}

pub(crate) fn amount(value: &Tree) -> i64 {
    parse(value).map_or(0, |quantity| quantity.value())
}

fn parse(value: &Tree) -> Option<Quantity> {
    match value.as_int() {
        Some(whole) => Quantity::parse(&whole.to_string()).ok(),
        None => Quantity::parse(value.as_str()?).ok(),
    }
}

/// CPU shares of so many millicores.
pub(crate) fn shares(milli: i64) -> i64 {
    (milli * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// The CPU quota of so many millicores in each period.
pub(crate) fn quota(milli: i64, period: i64) -> i64 {
    (milli * period / 1000).max(MIN_QUOTA)
}

/// The kernel's files are called after sizes like 2MB.
pub(crate) fn page_size(bytes: i64) -> String {
    let text = Quantity::new(bytes, Format::BinarySI).to_string();
    format!("{}B", text.strip_suffix('i').unwrap_or(&text))
}

/// An extended resource: it has a domain outside of kubernetes.io.
pub(crate) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

pub(crate) fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Containers that have done their work need no more and no less.
pub(crate) fn resizable(pod: &Tree) -> impl Iterator<Item = &Tree> {
    let beside = pod.list("spec.initContainers").iter().filter(|spec| pod::is_sidecar(spec));
    beside.chain(pod.list("spec.containers"))
}

/// The resize policy of a container for a resource.
pub(crate) fn resize_policy<'a>(spec: &'a Tree, resource: &str) -> &'a str {
    let of = spec.list("resizePolicy").iter().find(|policy| policy.str("resourceName") == resource);
    of.map_or("NotRequired", |policy| policy.str("restartPolicy"))
}
