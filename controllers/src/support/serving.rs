//! What Endpoints and EndpointSlices share: which pods are behind a service, by which ports, and when the
//! change that is told of has happened.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::selector::Selector;
use api::validation::parse_ip;
use api::{Tree, tree};
use client::{Change, Index, Key, Queue, Resource, Selection, Store, index};

use super::{PODS, conditions, pods};
use crate::{Context, Setup};

pub const SERVICES: Selection = Selection::all(Resource::core("services"));

/// Services by one label that all their pods have.
const BY_SELECTOR: Index = Index { name: "service-selector", values: selector_key };

/// Ended pods serve nobody, and one without an address cannot be reached.
pub fn may_serve(pod: &Tree, with_terminating: bool) -> bool {
    let has_address = !pod.str("status.podIP").is_empty() || !pod.list("status.podIPs").is_empty();
    !pods::is_terminal(pod) && has_address && (with_terminating || !pods::is_terminating(pod))
}

pub fn is_headless(service: &Tree) -> bool {
    matches!(service.str("spec.clusterIP"), "" | "None")
}

/// A service that chooses pods; an ExternalName has none, whatever it says.
pub fn selects(service: &Tree) -> bool {
    service.at("spec").has("selector") && service.str("spec.type") != "ExternalName"
}

/// The pod's name in DNS, where it asks for one under this service.
pub fn hostname<'a>(pod: &'a Tree, service: &Tree) -> Option<&'a str> {
    let hostname = pod.str("spec.hostname");
    (!hostname.is_empty() && pod.str("spec.subdomain") == service.str("metadata.name")).then_some(hostname)
}

/// The addresses of one family, in the form in which they are written down.
pub fn addresses(pod: &Tree, v6: bool) -> Vec<String> {
    let ips = pod.list("status.podIPs").iter().filter_map(|ip| parse_ip(ip.str("ip")));
    ips.filter(|ip| ip.is_ipv6() == v6).map(|ip: IpAddr| ip.to_string()).collect()
}

/// The number that a port of a service has in a pod; None where no container has the name.
pub fn find_port(pod: &Tree, service_port: &Tree) -> Option<i64> {
    let target = service_port.at("targetPort");
    if let Some(number) = target.as_int() {
        return Some(number);
    }
    let name = target.as_str()?;
    let protocol = service_port.str("protocol");
    let sidecars = pod.list("spec.initContainers").iter().filter(|init| init.str("restartPolicy") == "Always");
    let containers = pod.list("spec.containers").iter().chain(sidecars);
    containers
        .flat_map(|container| container.list("ports"))
        .find(|port| port.str("name") == name && port.str("protocol") == protocol)
        .and_then(|port| port.int("containerPort"))
}

/// The ports of a service as this pod has them; those that it does not have are left out.
pub fn ports(service: &Tree, pod: &Tree) -> Vec<Tree> {
    let resolve = |port: &Tree| {
        let mut found = tree! {
            "name" => port.str("name"),
            "protocol" => port.str("protocol"),
            "port" => find_port(pod, port)?,
        };
        if port.has("appProtocol") {
            found.set("appProtocol", port.str("appProtocol"));
        }
        Some(found)
    };
    service.list("spec.ports").iter().filter_map(resolve).collect()
}

pub fn target_ref(pod: &Tree) -> Tree {
    let meta = pod.at("metadata");
    tree! {
        "kind" => "Pod",
        "namespace" => meta.str("namespace"),
        "name" => meta.str("name"),
        "uid" => meta.str("uid"),
    }
}

/// Whether a pod's change can be seen in endpoints; most changes of a pod cannot.
pub fn is_seen(old: &Tree, new: &Tree) -> bool {
    let told = |pod: &Tree| (may_serve(pod, true), pods::is_terminating(pod), pods::is_ready(pod));
    let fields = ["status.podIP", "status.podIPs", "spec.nodeName", "spec.hostname", "spec.subdomain"];
    told(old) != told(new)
        || fields.iter().any(|field| old.at(field) != new.at(field))
        || old.str("metadata.uid") != new.str("metadata.uid")
        || old.map("metadata.labels") != new.map("metadata.labels")
}

/// When what is told of has happened: kept from one look at a service to the next, so that only news counts.
/// Times are RFC 3339 in UTC, which sort as text.
#[derive(Debug, Default, PartialEq)]
pub struct Triggers {
    service: String,
    pods: BTreeMap<String, String>,
    is_known: bool,
}

impl Triggers {
    /// The time of the oldest change since the last look; None where nothing with a time has changed.
    pub fn follow(&mut self, service: &Tree, pods: &[Arc<Tree>]) -> Option<String> {
        let created = service.str("metadata.creationTimestamp").to_string();
        let mut news: Vec<String> = Vec::new();
        let mut times = BTreeMap::new();
        for pod in pods {
            let time = conditions::get(pod, "Ready").map_or("", |ready| ready.str("lastTransitionTime"));
            if time.is_empty() {
                continue;
            }
            let name = pod.str("metadata.name");
            if self.pods.get(name).is_none_or(|before| before.as_str() < time) {
                news.push(time.to_string());
            }
            times.insert(name.to_string(), time.to_string());
        }
        if self.service < created {
            news.push(created.clone());
        }
        let is_new = !std::mem::replace(&mut self.is_known, true);
        self.pods = times;
        self.service.clone_from(&created);
        if is_new { Some(created) } else { news.into_iter().min() }
    }
}

/// A service without a selector is not found, and one whose selector is empty has all pods of the namespace.
fn selector_key(service: &Tree) -> Vec<String> {
    if !selects(service) {
        return Vec::new();
    }
    let namespace = service.str("metadata.namespace");
    let first = service.map("spec.selector").iter().next();
    let label = |(key, value): (&str, &Tree)| index::label(namespace, key, value.as_str().unwrap_or(""));
    vec![first.map_or_else(|| everything(namespace), label)]
}

/// All keys under which a service of this pod may be found.
fn service_keys(pod: &Tree) -> Vec<String> {
    let mut keys = (index::LABELS.values)(pod);
    keys.push(everything(pod.str("metadata.namespace")));
    keys
}

fn everything(namespace: &str) -> String {
    format!("{namespace}/")
}

/// Whether a service's selector chooses an object with these labels.
fn chooses(service: &Tree, object: &Tree) -> bool {
    let labels = object.map("metadata.labels");
    selects(service)
        && service.map("spec.selector").iter().all(|(key, value)| labels.get(key).is_some_and(|has| has == value))
}

/// The services whose selector chooses a pod.
pub fn services_of(services: &Store, pod: &Tree) -> Vec<Key> {
    let found = service_keys(pod).into_iter().flat_map(|key| services.find(BY_SELECTOR, &key));
    found.filter(|service| chooses(service, pod)).map(|service| client::key_of(&service)).collect()
}

/// The pods that a service chooses, in the order of their names.
pub fn pods_of(pods: &Store, service: &Tree) -> Vec<Arc<Tree>> {
    pods.select(service.str("metadata.namespace"), &Selector::from_labels(service.map("spec.selector")))
}

/// Puts services in the queue: those that change, and those of pods that change in a way that can be seen.
/// `batch` is how long more changes are waited for.
pub fn follow(setup: &Setup, context: &Context, batch: Duration) {
    let services = setup.informer(SERVICES);
    services.index_by(BY_SELECTOR);
    let queue = context.queue.clone();
    services.on_change(move |change| add(&queue, change.key.clone(), batch));
    let (store, queue) = (services.store().clone(), context.queue.clone());
    let pods = setup.informer(PODS);
    pods.index_by(index::LABELS);
    pods.on_change(move |change| {
        affected(&store, change).into_iter().for_each(|key| add(&queue, key, batch));
    });
}

pub fn add(queue: &Queue, key: Key, batch: Duration) {
    if batch.is_zero() { queue.add(key) } else { queue.add_after(key, batch) }
}

fn affected(services: &Store, change: &Change) -> Vec<Key> {
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    match (old, new) {
        (Some(old), Some(new)) if !is_seen(old, new) => Vec::new(),
        (Some(old), Some(new)) if old.map("metadata.labels") == new.map("metadata.labels") => {
            services_of(services, new)
        }
        _ => [old, new].into_iter().flatten().flat_map(|pod| services_of(services, pod)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn pod(name: &str, ready_since: &str) -> Arc<Tree> {
        let ready = tree! { "type" => "Ready", "status" => "True", "lastTransitionTime" => ready_since };
        Arc::new(tree! {
            "metadata" => tree! { "name" => name },
            "status" => tree! { "conditions" => list![ready] },
        })
    }

    #[test]
    fn the_oldest_news_is_the_trigger() {
        let service = tree! { "metadata" => tree! { "creationTimestamp" => "2024-05-05T00:00:00Z" } };
        let mut triggers = Triggers::default();
        let mut check = |pods: &[(&str, &str)], want: Option<&str>| {
            let pods: Vec<Arc<Tree>> = pods.iter().map(|(name, since)| pod(name, since)).collect();
            assert_eq!(triggers.follow(&service, &pods).as_deref(), want);
        };
        check(&[("a", "2024-01-01T00:00:00Z")], Some("2024-05-05T00:00:00Z"));
        check(&[("a", "2024-01-01T00:00:00Z")], None);
        check(&[("a", "2024-01-01T00:00:00Z"), ("b", "2024-01-02T00:00:00Z")], Some("2024-01-02T00:00:00Z"));
        check(&[("a", "2024-03-03T00:00:00Z"), ("b", "2024-03-02T00:00:00Z")], Some("2024-03-02T00:00:00Z"));
        check(&[("b", "2024-03-02T00:00:00Z")], None);
    }

    #[test]
    fn ports_are_found_by_name_in_containers_and_sidecars() {
        let port = |name: &str, number: i64, protocol: &str| {
            list![tree! { "name" => name, "containerPort" => number, "protocol" => protocol }]
        };
        let init = |policy: &str, name: &str| tree! { "restartPolicy" => policy, "ports" => port(name, 7, "TCP") };
        let pod = tree! { "spec" => tree! {
            "containers" => list![tree! { "ports" => port("http", 8080, "TCP") }],
            "initContainers" => list![init("", "once"), init("Always", "side")],
        } };
        let check = |target: Tree, protocol: &str, want: Option<i64>| {
            let port = tree! { "targetPort" => target, "protocol" => protocol };
            assert_eq!(find_port(&pod, &port), want, "{port:?}");
        };
        check("http".into(), "TCP", Some(8080));
        check("http".into(), "UDP", None);
        check("side".into(), "TCP", Some(7));
        check("once".into(), "TCP", None);
        check(9.into(), "UDP", Some(9));
    }

    #[test]
    fn a_service_is_found_by_the_labels_of_its_pods() {
        let service = |selector: Tree| {
            tree! {
                "metadata" => tree! { "namespace" => "n" },
                "spec" => tree! { "selector" => selector },
            }
        };
        let labels = tree! { "a" => "1", "b" => "2" };
        let pod = tree! { "metadata" => tree! { "namespace" => "n", "labels" => labels } };
        let check = |selector: Tree, want: bool| {
            let service = service(selector);
            let is_found = selector_key(&service).iter().any(|key| service_keys(&pod).contains(key));
            assert_eq!(is_found && chooses(&service, &pod), want, "{service:?}");
        };
        check(tree! { "a" => "1" }, true);
        check(tree! { "a" => "1", "b" => "2" }, true);
        check(tree! { "a" => "1", "c" => "2" }, false);
        check(tree! { "a" => "2" }, false);
        check(tree! {}, true);
        check(Tree::Null, false);
    }
}
