//! The Endpoints of a service: addresses grouped into subsets by their ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};

use crate::support::endpoint_pods::{Pod, is_headless};
use crate::support::slices::{HEADLESS, LAST_TRIGGER};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The capacity of one object; EndpointSlices contain the rest.
const MAX_ADDRESSES: usize = 1000;

pub(super) fn is_ours(endpoints: &Tree) -> bool {
    endpoints.map("metadata.labels").str(MANAGED_BY) == MANAGER
}

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    Create(Tree),
    Update(Tree),
}

/// The desired Endpoints of a service with a selector.
pub(super) fn plan(service: &Tree, pods: &[Arc<Pod>], there: Option<&Tree>, trigger: Option<&str>) -> Plan {
    let mut subsets = subsets(service, pods);
    let is_cut = truncate_addresses(&mut subsets, MAX_ADDRESSES);
    let subsets: Vec<Tree> = subsets.into_iter().map(Subset::into_tree).collect();
    let labels = labels(service);
    if let Some(there) = there {
        let annotation = there.map("metadata.annotations").contains(OVER_CAPACITY);
        let has_labels = there.map("metadata.labels") == labels.map("labels");
        if there.list("subsets") == subsets && has_labels && annotation == is_cut {
            return Plan::Keep;
        }
    }
    let mut changed = there.cloned().unwrap_or_else(|| tree! {});
    changed.set("apiVersion", "v1");
    changed.set("kind", "Endpoints");
    changed.set("subsets", subsets);
    changed.child("metadata").set("namespace", service.str("metadata.namespace"));
    changed.child("metadata").set("name", service.str("metadata.name"));
    changed.child("metadata").set("labels", labels.at("labels").clone());
    annotate(&mut changed, LAST_TRIGGER, trigger);
    annotate(&mut changed, OVER_CAPACITY, is_cut.then_some("truncated"));
    if there.is_some() { Plan::Update(changed) } else { Plan::Create(changed) }
}

fn labels(service: &Tree) -> Tree {
    let mut labels = service.at("metadata.labels").clone();
    labels.set(MANAGED_BY, MANAGER);
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.set(HEADLESS, "");
    }
    tree! { "labels" => labels }
}

fn annotate(object: &mut Tree, key: &str, value: Option<&str>) {
    match value {
        Some(value) => object.child("metadata.annotations").set(key, value),
        None => drop(object.at_mut("metadata.annotations").and_then(|annotations| annotations.remove(key))),
    }
}

/// Identity of an address: the IP and its pod.
type AddressIdentity = (String, String);
type Addresses = BTreeMap<AddressIdentity, Tree>;

#[derive(Debug, Default)]
struct Subset {
    ready: Vec<Tree>,
    not_ready: Vec<Tree>,
    ports: Vec<Tree>,
}

impl Subset {
    fn into_tree(self) -> Tree {
        let mut tree = tree! {};
        for (field, items) in [("addresses", self.ready), ("notReadyAddresses", self.not_ready), ("ports", self.ports)]
        {
            if !items.is_empty() {
                tree.set(field, items);
            }
        }
        tree
    }
}

/// Ports with the same addresses and readiness share a subset.
fn subsets(service: &Tree, pods: &[Arc<Pod>]) -> Vec<Subset> {
    let by_port = addresses_by_port(service, pods);
    let mut by_addresses: BTreeMap<Vec<(&AddressIdentity, bool)>, Vec<&PortKey>> = BTreeMap::new();
    for (port, (ready, not_ready)) in &by_port {
        let ready = ready.keys().map(|key| (key, true));
        let all = ready.chain(not_ready.keys().map(|key| (key, false))).collect();
        by_addresses.entry(all).or_default().push(port);
    }
    let mut subsets: Vec<(Vec<&PortKey>, Subset)> = Vec::new();
    for ports in by_addresses.into_values() {
        let (ready, not_ready) = &by_port[ports[0]];
        let subset = Subset {
            ready: ready.values().cloned().collect(),
            not_ready: not_ready.values().cloned().collect(),
            ports: ports.iter().filter_map(|port| port_tree(port)).collect(),
        };
        subsets.push((ports, subset));
    }
    subsets.sort_by(|a, b| a.0.cmp(&b.0));
    subsets.into_iter().map(|(_, subset)| subset).collect()
}

/// Name, number, protocol and application protocol; None for a headless service without ports.
type PortKey = Option<(String, i64, String, Option<String>)>;

fn addresses_by_port(service: &Tree, pods: &[Arc<Pod>]) -> BTreeMap<PortKey, (Addresses, Addresses)> {
    let publishes = service.bool("spec.publishNotReadyAddresses");
    let mut by_port: BTreeMap<PortKey, (Addresses, Addresses)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.may_serve(publishes)) {
        let Some(address) = address(service, pod) else { continue };
        for port in port_keys(service, pod) {
            let (ready, not_ready) = by_port.entry(port).or_default();
            let side = if publishes || pod.is_ready { ready } else { not_ready };
            let key = (address.str("ip").to_string(), pod.uid().to_string());
            side.insert(key, address.clone());
        }
    }
    by_port
}

fn port_keys(service: &Tree, pod: &Pod) -> Vec<PortKey> {
    if service.list("spec.ports").is_empty() {
        return if is_headless(service) { vec![None] } else { Vec::new() };
    }
    let key = |port: &Tree| {
        let protocol = port.at("appProtocol").as_str().map(str::to_string);
        let number = port.int("port").unwrap_or(0);
        Some((port.str("name").to_string(), number, port.str("protocol").to_string(), protocol))
    };
    pod.ports(service).iter().map(key).collect()
}

fn port_tree(port: &PortKey) -> Option<Tree> {
    let (name, number, protocol, app_protocol) = port.as_ref()?;
    let mut tree = tree! { "port" => *number, "protocol" => protocol };
    if !name.is_empty() {
        tree.set("name", name);
    }
    if let Some(app_protocol) = app_protocol {
        tree.set("appProtocol", app_protocol);
    }
    Some(tree)
}

/// The pod's address in the service's first IP family.
fn address(service: &Tree, pod: &Pod) -> Option<Tree> {
    let family = service.list("spec.ipFamilies").first().and_then(Tree::as_str);
    let v6 = family.map_or(service.str("spec.clusterIP").contains(':'), |family| family == "IPv6");
    let mut address = tree! { "ip" => pod.addresses(v6).into_iter().next()?, "targetRef" => pod.reference() };
    for (field, value) in [("nodeName", pod.node.as_str()), ("hostname", pod.hostname(service).unwrap_or(""))] {
        if !value.is_empty() {
            address.set(field, value);
        }
    }
    Some(address)
}

/// Truncates to the capacity: ready addresses take precedence, and each subset keeps its share.
fn truncate_addresses(subsets: &mut [Subset], limit: usize) -> bool {
    let ready: usize = subsets.iter().map(|subset| subset.ready.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready.len()).sum();
    if ready + not_ready <= limit {
        return false;
    }
    let cuts_ready = ready > limit;
    let (room, total) = if cuts_ready { (limit, ready) } else { (limit - ready, not_ready) };
    let mut left = room;
    for subset in subsets {
        if cuts_ready {
            subset.not_ready.clear();
        }
        let side = if cuts_ready { &mut subset.ready } else { &mut subset.not_ready };
        side.truncate((side.len() * room).div_ceil(total).min(left));
        left -= side.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;
    use crate::support::endpoint_pods::Templates;

    fn service(spec: Tree) -> Tree {
        tree! { "metadata" => tree! { "name" => "be", "labels" => tree! { "l" => "1" } }, "spec" => spec }
    }

    fn two_ports() -> Tree {
        let web = tree! { "name" => "web", "protocol" => "TCP", "port" => 80, "targetPort" => "http" };
        let number = tree! { "name" => "num", "protocol" => "TCP", "port" => 81, "targetPort" => 9 };
        service(tree! { "clusterIP" => "10.96.0.9", "ports" => list![web, number] })
    }

    fn pod(name: &str, ip: &str, ready: bool, port: i64) -> Arc<Pod> {
        Arc::new(Pod::of(&pod_tree(name, ip, ready, port), &Templates::default()))
    }

    fn pod_tree(name: &str, ip: &str, ready: bool, port: i64) -> Tree {
        let status = if ready { "True" } else { "False" };
        let ports = list![tree! { "name" => "http", "protocol" => "TCP", "containerPort" => port }];
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => name, "uid" => name },
            "spec" => tree! { "nodeName" => "node", "containers" => list![tree! { "ports" => ports }] },
            "status" => tree! {
                "podIPs" => list![tree! { "ip" => ip }],
                "conditions" => list![tree! { "type" => "Ready", "status" => status }],
            },
        }
    }

    /// Subsets as `ready|not ready|ports`.
    fn text(subsets: &[Tree]) -> Vec<String> {
        let names = |items: &[Tree], field: &str| -> String {
            items
                .iter()
                .map(|item| item.at(field))
                .map(|value| value.as_str().unwrap_or("-"))
                .collect::<Vec<_>>()
                .join(",")
        };
        let ports = |items: &[Tree]| -> String {
            items.iter().map(|port| format!("{}{}", port.str("name"), port.int("port").unwrap_or(0))).collect()
        };
        subsets
            .iter()
            .map(|subset| {
                let ready = names(subset.list("addresses"), "ip");
                let not_ready = names(subset.list("notReadyAddresses"), "ip");
                format!("{ready}|{not_ready}|{}", ports(subset.list("ports")))
            })
            .collect()
    }

    fn planned(service: &Tree, pods: &[Arc<Pod>]) -> Tree {
        match plan(service, pods, None, Some("2024-01-01T00:00:00Z")) {
            Plan::Create(made) => made,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ports_with_equal_addresses_share_a_subset() {
        let check = |pods: &[Arc<Pod>], want: &[&str]| {
            let made = planned(&two_ports(), pods);
            assert_eq!(text(made.list("subsets")), want);
            assert_eq!(plan(&two_ports(), pods, Some(&made), None), Plan::Keep);
        };
        check(&[], &[]);
        check(&[pod("a", "10.0.0.1", true, 8080)], &["10.0.0.1||num9web8080"]);
        check(
            &[pod("a", "10.0.0.1", true, 8080), pod("b", "10.0.0.2", false, 8081)],
            &["10.0.0.1|10.0.0.2|num9", "10.0.0.1||web8080", "|10.0.0.2|web8081"],
        );
        check(
            &[pod("b", "10.0.0.2", true, 8080), pod("a", "10.0.0.1", true, 8080)],
            &["10.0.0.1,10.0.0.2||num9web8080"],
        );
    }

    #[test]
    fn sets_labels_and_annotations() {
        let made = planned(&two_ports(), &[]);
        assert_eq!(*made.at("metadata.labels"), tree! { "l" => "1", MANAGED_BY => MANAGER });
        assert_eq!(made.map("metadata.annotations").str(LAST_TRIGGER), "2024-01-01T00:00:00Z");
        let mut other = two_ports();
        other.child("metadata").set("labels", tree! { "l" => "2" });
        let Plan::Update(changed) = plan(&other, &[], Some(&made), None) else { panic!("labels follow") };
        assert_eq!(changed.map("metadata.labels").str("l"), "2");
        assert!(!changed.map("metadata.annotations").contains(LAST_TRIGGER), "no news, no time");
    }

    #[test]
    fn a_headless_service_may_have_no_ports() {
        let headless = service(tree! { "clusterIP" => "None" });
        let made = planned(&headless, &[pod("a", "10.0.0.1", true, 1)]);
        assert_eq!(text(made.list("subsets")), ["10.0.0.1||"]);
        assert!(made.map("metadata.labels").contains(HEADLESS));
    }

    #[test]
    fn terminating_pods_stay_where_all_are_published() {
        let mut pod = pod_tree("a", "10.0.0.1", false, 1);
        pod.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
        let pods = [Arc::new(Pod::of(&pod, &Templates::default()))];
        assert_eq!(planned(&two_ports(), &pods).list("subsets").len(), 0);
        let mut publishing = two_ports();
        publishing.child("spec").set("publishNotReadyAddresses", true);
        assert_eq!(text(planned(&publishing, &pods).list("subsets")), ["10.0.0.1||num9web1"]);
    }

    #[test]
    fn truncates_and_annotates_over_capacity() {
        let pods = |ready: usize, not_ready: usize| -> Vec<Arc<Pod>> {
            let ip = |at: usize| format!("10.0.{}.{}", at / 250, at % 250);
            (0..ready + not_ready).map(|at| pod(&format!("p{at}"), &ip(at), at < ready, 1)).collect()
        };
        let port = tree! { "name" => "web", "protocol" => "TCP", "port" => 80, "targetPort" => 9 };
        let service = service(tree! { "clusterIP" => "10.96.0.9", "ports" => list![port] });
        let check = |ready: usize, not_ready: usize, want: (usize, usize, bool)| {
            let pods = pods(ready, not_ready);
            let made = planned(&service, &pods);
            let subset = &made.list("subsets")[0];
            let is_marked = made.map("metadata.annotations").str(OVER_CAPACITY) == "truncated";
            assert_eq!((subset.list("addresses").len(), subset.list("notReadyAddresses").len(), is_marked), want);
            assert_eq!(plan(&service, &pods, Some(&made), None), Plan::Keep, "it is cut the same way again");
        };
        check(900, 100, (900, 100, false));
        check(900, 101, (900, 100, true));
        check(1001, 5, (1000, 0, true));
    }
}
