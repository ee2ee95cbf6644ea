//! The EndpointSlices for user-created Endpoints of a service without a selector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::validation::parse_ip;
use api::{Tree, tree};

use crate::support::slices::{
    Changes, Endpoints, LAST_TRIGGER, MANAGED_BY, SERVICE_NAME, Template, empty_slice, identity, is_owned_by,
    obsolete_groups, pack, ports_key,
};

pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub changes: Changes,
    /// Why addresses are skipped: reason and message.
    pub warnings: Vec<(&'static str, String)>,
}

/// `limit` is the maximum number of mirrored addresses per subset.
pub(super) fn plan(endpoints: Option<&Tree>, service: Option<&Tree>, slices: &[Arc<Tree>], limit: usize) -> Plan {
    match (endpoints, service) {
        (Some(endpoints), Some(service)) if is_mirrored(endpoints, service) => mirror(endpoints, slices, limit),
        _ => Plan { changes: Changes { delete: slices.to_vec(), ..Changes::default() }, warnings: Vec::new() },
    }
}

fn is_mirrored(endpoints: &Tree, service: &Tree) -> bool {
    let skips = endpoints.map("metadata.labels").str(SKIP) == "true";
    let elects = endpoints.map("metadata.annotations").contains(LEADER);
    !skips && !elects && !service.at("spec").has("selector")
}

fn mirror(endpoints: &Tree, slices: &[Arc<Tree>], limit: usize) -> Plan {
    let (groups, warnings) = groups(endpoints, limit);
    let mut there: BTreeMap<String, Vec<Arc<Tree>>> = BTreeMap::new();
    for slice in slices {
        let key = format!("{}\n{}", slice.str("addressType"), ports_key(slice.list("ports")));
        there.entry(key).or_default().push(slice.clone());
    }
    let mut changes = Changes::default();
    let mut wanted = BTreeSet::new();
    for (key, group) in groups {
        let mut empty = empty_slice(endpoints, group.family, &group.ports, labels(endpoints));
        if let Some(annotations) = annotations(endpoints) {
            empty.child("metadata").set("annotations", annotations);
        }
        let template = Template { empty, owns_annotations: true, max_endpoints: limit };
        changes.append(pack(&template, there.get(&key).map_or(&[], Vec::as_slice), group.endpoints));
        wanted.insert(key);
    }
    changes.delete.extend(obsolete_groups(&there, &wanted));
    changes.recycle(|old| is_owned_by(old, endpoints));
    if endpoints.at("metadata").has("deletionTimestamp") {
        changes.create.clear();
    }
    Plan { changes, warnings }
}

struct Group {
    family: &'static str,
    ports: Vec<Tree>,
    endpoints: Endpoints,
}

type Warnings = Vec<(&'static str, String)>;

/// The endpoints by family and ports, and warnings about skipped addresses.
fn groups(endpoints: &Tree, limit: usize) -> (BTreeMap<String, Group>, Warnings) {
    let mut groups = BTreeMap::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in endpoints.list("subsets") {
        let ports: Vec<Tree> = subset.list("ports").iter().map(port).collect();
        let ready = subset.list("addresses").iter().map(|address| (address, true));
        let all = ready.chain(subset.list("notReadyAddresses").iter().map(|address| (address, false)));
        let mut added = 0;
        for (address, ready) in all {
            match parse_ip(address.str("ip")) {
                None => invalid += 1,
                Some(_) if added >= limit => skipped += 1,
                Some(ip) => {
                    let family = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
                    let key = format!("{family}\n{}", ports_key(&ports));
                    let fresh = || Group { family, ports: ports.clone(), endpoints: Endpoints::new() };
                    let group: &mut Group = groups.entry(key).or_insert_with(fresh);
                    let endpoint = endpoint(address, &ip.to_string(), ready);
                    // An address that is ready in one subset is ready.
                    group.endpoints.entry(identity(&endpoint)).or_insert(endpoint);
                    added += 1;
                }
            }
        }
    }
    (groups, warnings(invalid, skipped, limit))
}

fn warnings(invalid: usize, skipped: usize, limit: usize) -> Warnings {
    let mut warnings = Warnings::new();
    if invalid > 0 {
        let text = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        warnings.push(("InvalidIPAddress", text));
    }
    if skipped > 0 {
        let text = format!(
            "A max of {limit} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
            invalid + skipped
        );
        warnings.push(("TooManyAddressesToMirror", text));
    }
    warnings
}

fn port(port: &Tree) -> Tree {
    let mut mirrored =
        tree! { "name" => port.str("name"), "protocol" => port.str("protocol"), "port" => port.at("port").clone() };
    if port.has("appProtocol") {
        mirrored.set("appProtocol", port.str("appProtocol"));
    }
    mirrored
}

fn endpoint(address: &Tree, ip: &str, ready: bool) -> Tree {
    let mut endpoint = tree! { "addresses" => vec![Tree::from(ip)], "conditions" => tree! { "ready" => ready } };
    for field in ["targetRef", "nodeName", "hostname"] {
        if address.has(field) {
            endpoint.set(field, address.at(field).clone());
        }
    }
    endpoint
}

fn labels(endpoints: &Tree) -> Tree {
    let mut labels = endpoints.at("metadata.labels").clone();
    labels.set(SERVICE_NAME, endpoints.str("metadata.name"));
    labels.set(MANAGED_BY, MANAGER);
    labels
}

fn annotations(endpoints: &Tree) -> Option<Tree> {
    let mut annotations = endpoints.at("metadata.annotations").clone();
    annotations.remove(LAST_TRIGGER);
    annotations.remove(LAST_APPLIED);
    annotations.as_map().is_some_and(|map| !map.is_empty()).then_some(annotations)
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn endpoints(subsets: Tree) -> Tree {
        let annotations = tree! { "a" => "1", LAST_TRIGGER => "x", LAST_APPLIED => "y" };
        let metadata = tree! {
            "name" => "e",
            "uid" => "u",
            "labels" => tree! { "l" => "1" },
            "annotations" => annotations,
        };
        tree! { "apiVersion" => "v1", "kind" => "Endpoints", "metadata" => metadata, "subsets" => subsets }
    }

    fn subset(ips: &[&str], port: i64) -> Tree {
        let addresses: Vec<Tree> = ips.iter().map(|ip| tree! { "ip" => *ip }).collect();
        tree! { "addresses" => addresses, "ports" => list![tree! { "port" => port, "protocol" => "TCP" }] }
    }

    fn service() -> Tree {
        tree! { "spec" => tree! {} }
    }

    fn planned(endpoints: &Tree) -> Vec<Arc<Tree>> {
        let plan = plan(Some(endpoints), Some(&service()), &[], 1000);
        let name = |(at, mut slice): (usize, Tree)| {
            slice.child("metadata").set("name", format!("e-{at}"));
            Arc::new(slice)
        };
        plan.changes.create.into_iter().enumerate().map(name).collect()
    }

    #[test]
    fn mirrors_addresses_and_ports() {
        let made = planned(&endpoints(list![subset(&["192.0.2.77"], 80)]));
        assert_eq!(made.len(), 1);
        let labels = tree! { "l" => "1", MANAGED_BY => MANAGER, SERVICE_NAME => "e" };
        assert_eq!(*made[0].at("metadata.labels"), labels);
        assert_eq!(*made[0].at("metadata.annotations"), tree! { "a" => "1" });
        let endpoint = tree! { "addresses" => list!["192.0.2.77"], "conditions" => tree! { "ready" => true } };
        assert_eq!(made[0].list("endpoints"), [endpoint]);
        assert_eq!(made[0].list("ports"), [tree! { "name" => "", "protocol" => "TCP", "port" => 80 }]);
    }

    #[test]
    fn slices_are_split_and_unchanged_input_writes_nothing() {
        let endpoints = endpoints(list![
            subset(&["192.0.2.1", "fd00::1"], 80),
            subset(&["192.0.2.2"], 80),
            subset(&["192.0.2.3"], 81)
        ]);
        let slices = planned(&endpoints);
        assert_eq!(slices.len(), 3);
        assert_eq!(plan(Some(&endpoints), Some(&service()), &slices, 1000).changes, Changes::default());
        let mut relabelled = endpoints.clone();
        relabelled.child("metadata").set("annotations", tree! { "a" => "2" });
        assert_eq!(plan(Some(&relabelled), Some(&service()), &slices, 1000).changes.update.len(), 3);
    }

    #[test]
    fn deletes_slices_of_unmirrored_endpoints() {
        let endpoints = endpoints(list![subset(&["192.0.2.1"], 80)]);
        let slices = planned(&endpoints);
        let check = |endpoints: Option<&Tree>, service: Option<&Tree>| {
            let plan = plan(endpoints, service, &slices, 1000);
            assert_eq!((plan.changes.delete.len(), plan.changes.create.len()), (1, 0));
        };
        check(None, Some(&service()));
        check(Some(&endpoints), None);
        check(Some(&endpoints), Some(&tree! { "spec" => tree! { "selector" => tree! { "a" => "b" } } }));
        let mut skipping = endpoints.clone();
        skipping.child("metadata.labels").set(SKIP, "true");
        check(Some(&skipping), Some(&service()));
        let mut leading = endpoints.clone();
        leading.child("metadata.annotations").set(LEADER, "{}");
        check(Some(&leading), Some(&service()));
    }

    #[test]
    fn reports_skipped_addresses() {
        let many: Vec<String> = (0..1002).map(|at| format!("10.0.{}.{}", at / 250, at % 250)).collect();
        let mut ips: Vec<&str> = many.iter().map(String::as_str).collect();
        ips.insert(0, "nonsense");
        let plan = plan(Some(&endpoints(list![subset(&ips, 80)])), Some(&service()), &[], 1000);
        assert_eq!(plan.changes.create[0].list("endpoints").len(), 1000);
        let texts: Vec<&str> = plan.warnings.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "Skipped 1 invalid IP addresses when mirroring to EndpointSlices",
                "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 addresses were skipped",
            ]
        );
    }
}
