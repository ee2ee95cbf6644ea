//! Which EndpointSlices a service should have: one endpoint a pod and family, grouped by the ports that
//! the pod has for the service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Str, Tree, list, tree};
use client::Key;

use crate::support::serving::{Pod, is_headless};
use crate::support::slices::{
    Changes, Endpoints, HEADLESS, LAST_TRIGGER, MANAGED_BY, SERVICE_NAME, Template, by_ports, empty_slice, identity,
    is_owned_by, pack, ports_key, unwanted,
};

pub const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The zone of each node that there is, or "".
pub type Zones = BTreeMap<Key, Str>;

/// What is seen of a service.
pub struct Observed<'a> {
    pub service: &'a Tree,
    /// Those that the selector chooses, in the order of their names.
    pub pods: &'a [Arc<Pod>],
    pub zones: &'a Zones,
    /// Those of this controller for this service, in the order of their names.
    pub slices: &'a [Arc<Tree>],
    pub max_endpoints: usize,
    pub trigger: Option<&'a str>,
}

const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

/// Whether a service asks for hints by the size of zones.
pub fn topology(service: &Tree) -> &'static str {
    match service.map("metadata.annotations").str(TOPOLOGY_MODE) {
        "Auto" | "auto" => "Auto",
        _ => "Disabled",
    }
}

pub fn plan(observed: &Observed<'_>) -> Changes {
    let families = families(observed.service);
    let mut changes = Changes::default();
    for family in &families {
        changes.append(plan_family(observed, family));
    }
    let is_foreign = |slice: &&Arc<Tree>| !families.contains(&slice.str("addressType"));
    changes.delete.extend(observed.slices.iter().filter(is_foreign).cloned());
    changes.recycle(|old| is_owned_by(old, observed.service));
    // The garbage collector is at work on a service that goes: nothing new may come in its way.
    if observed.service.at("metadata").has("deletionTimestamp") {
        changes.create.clear();
    }
    changes.create.iter_mut().chain(&mut changes.update).for_each(|slice| tell_trigger(slice, observed.trigger));
    changes
}

/// The address types of a service. One that no server has defaulted yet is judged by its address.
fn families(service: &Tree) -> Vec<&'static str> {
    let of = |family: &Tree| match family.as_str() {
        Some("IPv4") => Some("IPv4"),
        Some("IPv6") => Some("IPv6"),
        _ => None,
    };
    let families: Vec<&str> = service.list("spec.ipFamilies").iter().filter_map(of).collect();
    match (families.is_empty(), is_headless(service)) {
        (false, _) => families,
        (true, true) => vec!["IPv4", "IPv6"],
        (true, false) if service.str("spec.clusterIP").contains(':') => vec!["IPv6"],
        (true, false) => vec!["IPv4"],
    }
}

fn plan_family(observed: &Observed<'_>, family: &'static str) -> Changes {
    let of_family = observed.slices.iter().filter(|slice| slice.str("addressType") == family);
    let (owned, stray): (Vec<&Arc<Tree>>, Vec<&Arc<Tree>>) =
        of_family.partition(|slice| is_owned_by(slice, observed.service));
    let there = by_ports(owned.iter().copied());
    let mut changes = Changes { delete: stray.into_iter().cloned().collect(), ..Changes::default() };
    let mut wanted = BTreeSet::new();
    for (key, (ports, endpoints)) in groups(observed, family) {
        let empty = empty_slice(observed.service, family, &ports, labels(observed.service));
        let template = Template { empty, owns_annotations: false, max_endpoints: observed.max_endpoints };
        changes.append(pack(&template, there.get(&key).map_or(&[], Vec::as_slice), endpoints));
        wanted.insert(key);
    }
    changes.delete.extend(unwanted(&there, &wanted));
    keep_one(observed, family, owned.len(), &mut changes);
    changes
}

type Groups = BTreeMap<String, (Vec<Tree>, Endpoints)>;

fn groups(observed: &Observed<'_>, family: &str) -> Groups {
    let mut groups = Groups::new();
    for pod in observed.pods.iter().filter(|pod| pod.may_serve(true)) {
        let mut ports = pod.ports(observed.service);
        ports.sort_by(|a, b| a.str("name").cmp(b.str("name")));
        let group = groups.entry(ports_key(&ports)).or_insert_with(|| (ports, Endpoints::new()));
        if let Some(endpoint) = endpoint(observed, pod, family) {
            group.1.insert(identity(&endpoint), endpoint);
        }
    }
    groups
}

/// A pod on a node that is not there is left out, unless all are to be published: it will be gone soon.
fn endpoint(observed: &Observed<'_>, pod: &Pod, family: &str) -> Option<Tree> {
    let service = observed.service;
    let publishes = service.bool("spec.publishNotReadyAddresses");
    let zone = observed.zones.get(pod.node.as_str());
    let addresses: Vec<Tree> = pod.addresses(family == "IPv6").into_iter().map(Tree::from).collect();
    if addresses.is_empty() || (zone.is_none() && !publishes) {
        return None;
    }
    let (serving, terminating) = (pod.is_ready, pod.is_terminating);
    let ready = publishes || (serving && !terminating);
    let mut endpoint = tree! {
        "addresses" => addresses,
        "conditions" => tree! { "ready" => ready, "serving" => serving, "terminating" => terminating },
        "targetRef" => pod.reference(),
    };
    let (node, zone) = (pod.node.as_str(), zone.map_or("", Str::as_str));
    for (field, value) in [("nodeName", node), ("zone", zone), ("hostname", pod.hostname(service).unwrap_or(""))] {
        if !value.is_empty() {
            endpoint.set(field, value);
        }
    }
    if ready && let Some(hints) = hints(service, node, zone) {
        endpoint.set("hints", hints);
    }
    Some(endpoint)
}

pub fn zone(node: &Tree) -> &str {
    node.map("metadata.labels").str(ZONE)
}

/// For whom an endpoint is meant, where the service prefers what is near.
fn hints(service: &Tree, node: &str, zone: &str) -> Option<Tree> {
    let distribution = service.str("spec.trafficDistribution");
    let mut hints = tree! {};
    let is_near = matches!(distribution, "PreferClose" | "PreferSameZone" | "PreferSameNode");
    if is_near && !zone.is_empty() {
        hints.set("forZones", list![tree! { "name" => zone }]);
    }
    if distribution == "PreferSameNode" && !node.is_empty() {
        hints.set("forNodes", list![tree! { "name" => node }]);
    }
    hints.as_map().is_some_and(|map| !map.is_empty()).then_some(hints)
}

/// The service's own labels, but for those by which slices are managed.
fn labels(service: &Tree) -> Tree {
    let mut labels = tree! {};
    for (key, value) in service.map("metadata.labels").iter() {
        labels.set(key, value.clone());
    }
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.set(HEADLESS, "");
    }
    labels.set(SERVICE_NAME, service.str("metadata.name"));
    labels.set(MANAGED_BY, MANAGER);
    labels
}

/// A service without endpoints has one empty slice, so that everyone sees that there are none.
fn keep_one(observed: &Observed<'_>, family: &str, owned: usize, changes: &mut Changes) {
    let is_owned = |slice: &Arc<Tree>| is_owned_by(slice, observed.service);
    let going = changes.delete.iter().filter(|slice| is_owned(slice)).count();
    if !changes.create.is_empty() || going < owned {
        return;
    }
    let empty = empty_slice(observed.service, family, &[], labels(observed.service));
    let is_it = |slice: &Arc<Tree>| {
        let is_empty = slice.list("endpoints").is_empty() && slice.list("ports").is_empty();
        is_owned(slice) && is_empty && slice.map("metadata.labels") == empty.map("metadata.labels")
    };
    match changes.delete.iter().position(is_it) {
        Some(at) => drop(changes.delete.remove(at)),
        None => changes.create.push(empty),
    }
}

fn tell_trigger(slice: &mut Tree, trigger: Option<&str>) {
    let annotations = slice.child("metadata.annotations");
    match trigger {
        Some(time) => annotations.set(LAST_TRIGGER, time),
        None => drop(annotations.remove(LAST_TRIGGER)),
    }
    if annotations.as_map().is_some_and(api::tree::Map::is_empty) {
        slice.remove_at("metadata.annotations");
    }
}

#[cfg(test)]
mod tests;
