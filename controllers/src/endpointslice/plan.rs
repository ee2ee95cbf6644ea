//! The desired EndpointSlices of a service: one endpoint per pod and IP family, grouped by the ports of the pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Str, Tree, list, tree};

use super::topology::{self, HintResult, NodeTopologies};
use crate::support::endpoint_pods::{Pod, is_headless};
use crate::support::event_message::EventMessage;
use crate::support::slices::{
    Changes, Endpoints, HEADLESS, LAST_TRIGGER, MANAGED_BY, SERVICE_NAME, Template, by_ports, empty_slice, identity,
    is_owned_by, obsolete_groups, pack, ports_key,
};

pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The observed state of a service.
pub(super) struct ObservedState<'a> {
    pub service: &'a Tree,
    /// The pods that match the selector, sorted by name.
    pub pods: &'a [Arc<Pod>],
    pub topologies: &'a NodeTopologies,
    /// The service's slices of this controller, sorted by name.
    pub slices: &'a [Arc<Tree>],
    pub max_endpoints: usize,
    pub trigger: Option<&'a str>,
}

/// The changes for a service.
pub(super) struct Plan {
    pub changes: Changes,
    /// By IP family; empty if the service does not use topology-aware hints.
    pub hinted: HintResults,
}

pub(crate) type HintResults = BTreeMap<&'static str, HintResult>;

/// The older annotation takes precedence.
const TOPOLOGY_MODES: [&str; 2] = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// Whether a service uses topology-aware hints.
pub(crate) fn is_by_zone_size(service: &Tree) -> bool {
    let annotations = service.map("metadata.annotations");
    let mode = TOPOLOGY_MODES.into_iter().find(|name| annotations.contains(name));
    mode.is_some_and(|name| matches!(annotations.str(name), "Auto" | "auto"))
}

/// The trafficDistribution of a service if it is supported, or the empty string.
pub(super) fn distribution(service: &Tree) -> &str {
    match service.str("spec.trafficDistribution") {
        near @ ("PreferClose" | "PreferSameZone" | "PreferSameNode") if !is_by_zone_size(service) => near,
        _ => "",
    }
}

/// Events about changed topology-aware hints.
pub(super) fn hint_events(before: &HintResults, now: &HintResults) -> Vec<EventMessage> {
    let has_hints = |hinted: &HintResults| hinted.values().any(|hinted| matches!(hinted, HintResult::Yes(_)));
    let enabled = |family: &str| {
        let text = format!("Topology Aware Hints has been enabled, addressType: {family}");
        EventMessage::normal("TopologyAwareHintsEnabled", text)
    };
    let disabled = |family: &str, why: &str| {
        EventMessage::warning("TopologyAwareHintsDisabled", format!("{why}, addressType: {family}"))
    };
    if now.is_empty() {
        let had = before.iter().find(|(_, hinted)| matches!(hinted, HintResult::Yes(_)));
        return had.map(|(family, _)| disabled(family, "Topology Aware Hints has been disabled")).into_iter().collect();
    }
    let mut is_told = has_hints(before);
    let mut events = Vec::new();
    for (family, hinted) in now {
        match hinted {
            HintResult::Yes(_) if !std::mem::replace(&mut is_told, true) => events.push(enabled(family)),
            HintResult::No(why) if before.get(family) != Some(hinted) => {
                events.push(disabled(family, &why.to_string()))
            }
            _ => {}
        }
    }
    events
}

pub(super) fn plan(observed: &ObservedState<'_>) -> Plan {
    let families = families(observed.service);
    let shares = is_by_zone_size(observed.service).then(|| topology::shares(observed.topologies));
    let mut changes = Changes::default();
    let mut hinted = HintResults::new();
    for family in &families {
        let mut of_family = plan_family(observed, family);
        if let Some(shares) = &shares {
            let unchanged = unchanged(observed, family, &of_family);
            hinted.insert(family, topology::hint(&mut of_family, &unchanged, shares.as_ref()));
        }
        changes.append(of_family);
    }
    let is_foreign = |slice: &&Arc<Tree>| !families.contains(&slice.str("addressType"));
    changes.delete.extend(observed.slices.iter().filter(is_foreign).cloned());
    changes.recycle(|old| is_owned_by(old, observed.service));
    // The garbage collector deletes the slices of a terminating service: no new ones are created.
    if observed.service.at("metadata").has("deletionTimestamp") {
        changes.create.clear();
    }
    changes.create.iter_mut().chain(&mut changes.update).for_each(|slice| set_trigger(slice, observed.trigger));
    Plan { changes, hinted }
}

/// The slices of a family that are not changed.
fn unchanged(observed: &ObservedState<'_>, family: &str, changes: &Changes) -> Vec<Arc<Tree>> {
    let deleted = changes.delete.iter().map(AsRef::as_ref);
    let touched: BTreeSet<&str> =
        changes.update.iter().chain(deleted).map(|slice| slice.str("metadata.name")).collect();
    let stays =
        |slice: &&Arc<Tree>| slice.str("addressType") == family && !touched.contains(slice.str("metadata.name"));
    observed.slices.iter().filter(stays).cloned().collect()
}

/// The address types of a service; derived from its clusterIP if it has no ipFamilies yet.
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

fn plan_family(observed: &ObservedState<'_>, family: &'static str) -> Changes {
    let of_family = observed.slices.iter().filter(|slice| slice.str("addressType") == family);
    let (owned, stray): (Vec<&Arc<Tree>>, Vec<&Arc<Tree>>) =
        of_family.partition(|slice| is_owned_by(slice, observed.service));
    let there = by_ports(owned.iter().copied());
    let mut changes = Changes { delete: stray.into_iter().cloned().collect(), ..Changes::default() };
    let mut desired = BTreeSet::new();
    for (key, (ports, mut endpoints)) in groups(observed, family) {
        if is_by_zone_size(observed.service) {
            keep_hints(&mut endpoints, there.get(&key).map_or(&[], Vec::as_slice));
        }
        let empty = empty_slice(observed.service, family, &ports, labels(observed.service));
        let template = Template { empty, owns_annotations: false, max_endpoints: observed.max_endpoints };
        changes.append(pack(&template, there.get(&key).map_or(&[], Vec::as_slice), endpoints));
        desired.insert(key);
    }
    changes.delete.extend(obsolete_groups(&there, &desired));
    keep_one(observed, family, owned.len(), &mut changes);
    changes
}

/// Endpoints keep their hints until all hints are computed, so that otherwise unchanged slices are not written.
fn keep_hints(endpoints: &mut Endpoints, slices: &[Arc<Tree>]) {
    for old in slices.iter().flat_map(|slice| slice.list("endpoints")) {
        if let Some(endpoint) = endpoints.get_mut(&identity(old))
            && endpoint.bool("conditions.ready")
            && let Some(hints) = old.get("hints")
        {
            endpoint.set("hints", hints.clone());
        }
    }
}

type Groups = BTreeMap<String, (Vec<Tree>, Endpoints)>;

fn groups(observed: &ObservedState<'_>, family: &str) -> Groups {
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

/// Pods on unknown nodes are skipped unless not-ready addresses are published: they will be deleted soon.
fn endpoint(observed: &ObservedState<'_>, pod: &Pod, family: &str) -> Option<Tree> {
    let service = observed.service;
    let publishes = service.bool("spec.publishNotReadyAddresses");
    let zone = observed.topologies.get(pod.node.as_str()).map(|place| &place.zone);
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

/// The hints of an endpoint for the service's trafficDistribution.
fn hints(service: &Tree, node: &str, zone: &str) -> Option<Tree> {
    let distribution = distribution(service);
    let mut hints = tree! {};
    if !distribution.is_empty() && !zone.is_empty() {
        hints.set("forZones", list![tree! { "name" => zone }]);
    }
    if distribution == "PreferSameNode" && !node.is_empty() {
        hints.set("forNodes", list![tree! { "name" => node }]);
    }
    hints.as_map().is_some_and(|map| !map.is_empty()).then_some(hints)
}

/// The service's labels except those that manage slices.
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

/// A service without endpoints has one empty slice, which shows clients that there are none.
fn keep_one(observed: &ObservedState<'_>, family: &str, owned: usize, changes: &mut Changes) {
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

fn set_trigger(slice: &mut Tree, trigger: Option<&str>) {
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
