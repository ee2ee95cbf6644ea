//! A compact form of a pod with the fields that endpoints need: a service may have thousands of pods, and all are read
//! whenever one changes.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use api::validation::parse_ip;
use api::{Str, Tree, time, tree};
use client::{Key, key_of, split};
use stdx::sync::Mutex;

use crate::support::{conditions, pods};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pod {
    pub key: Key,
    uid: Str,
    pub node: Str,
    hostname: Str,
    subdomain: Str,
    ips: Box<[IpAddr]>,
    /// The pod has not finished and has an address.
    can_serve: bool,
    pub is_terminating: bool,
    pub is_ready: bool,
    /// The last transition of its Ready condition.
    pub turned: Option<i64>,
    ports: Ports,
    /// A hash of its labels, to detect changes.
    pub labels: u64,
}

/// The named container ports. Pods of one template share them.
type Ports = Arc<[Port]>;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Port {
    name: Str,
    protocol: Str,
    number: i64,
}

/// Interned ports.
#[derive(Debug, Default)]
pub(crate) struct Templates(Mutex<HashSet<Ports>>);

/// Above this number, unused ports are dropped.
const MANY_TEMPLATES: usize = 1024;

impl Templates {
    fn share(&self, ports: Ports) -> Ports {
        let mut known = self.0.lock();
        if let Some(same) = known.get(&ports) {
            return same.clone();
        }
        if known.len() >= MANY_TEMPLATES {
            known.retain(|ports| Arc::strong_count(ports) > 1);
        }
        known.insert(ports.clone());
        ports
    }
}

impl Pod {
    pub(crate) fn of(pod: &Tree, templates: &Templates) -> Pod {
        let ready = conditions::get(pod, "Ready").map_or("", |ready| ready.str("lastTransitionTime"));
        let has_address = !pod.str("status.podIP").is_empty() || !pod.list("status.podIPs").is_empty();
        Pod {
            key: key_of(pod),
            uid: pod.str("metadata.uid").into(),
            node: pod.str("spec.nodeName").into(),
            hostname: pod.str("spec.hostname").into(),
            subdomain: pod.str("spec.subdomain").into(),
            ips: pod.list("status.podIPs").iter().filter_map(|ip| parse_ip(ip.str("ip"))).collect(),
            can_serve: has_address && !pods::is_terminal(pod),
            is_terminating: pods::is_terminating(pod),
            is_ready: pods::is_ready(pod),
            turned: time::parse(ready).ok().map(|time| time.seconds),
            ports: templates.share(ports_of(pod)),
            labels: hash_of_labels(pod),
        }
    }

    /// Finished pods and pods without an address cannot serve.
    pub(crate) fn may_serve(&self, with_terminating: bool) -> bool {
        self.can_serve && (with_terminating || !self.is_terminating)
    }

    /// The pod's hostname if it requests one under this service.
    pub(crate) fn hostname(&self, service: &Tree) -> Option<&str> {
        let asks = !self.hostname.is_empty() && self.subdomain == service.str("metadata.name");
        asks.then_some(self.hostname.as_str())
    }

    /// The addresses of one IP family in canonical form.
    pub(crate) fn addresses(&self, v6: bool) -> Vec<String> {
        self.ips.iter().filter(|ip| ip.is_ipv6() == v6).map(ToString::to_string).collect()
    }

    /// The port number of a service port in this pod; None if no container has the name.
    fn find_port(&self, service_port: &Tree) -> Option<i64> {
        let target = service_port.at("targetPort");
        if let Some(number) = target.as_int() {
            return Some(number);
        }
        let (name, protocol) = (target.as_str()?, service_port.str("protocol"));
        self.ports.iter().find(|port| port.name == name && port.protocol == protocol).map(|port| port.number)
    }

    /// The ports of a service in this pod; missing ones are skipped.
    pub(crate) fn ports(&self, service: &Tree) -> Vec<Tree> {
        let resolve = |port: &Tree| {
            let mut found = tree! {
                "name" => port.str("name"),
                "protocol" => port.str("protocol"),
                "port" => self.find_port(port)?,
            };
            if port.has("appProtocol") {
                found.set("appProtocol", port.str("appProtocol"));
            }
            Some(found)
        };
        service.list("spec.ports").iter().filter_map(resolve).collect()
    }

    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    pub(crate) fn reference(&self) -> Tree {
        let (namespace, name) = split(&self.key);
        tree! { "kind" => "Pod", "namespace" => namespace, "name" => name, "uid" => self.uid.as_str() }
    }
}

/// Of containers and sidecars.
fn ports_of(pod: &Tree) -> Ports {
    let sidecars = pod.list("spec.initContainers").iter().filter(|init| init.str("restartPolicy") == "Always");
    let containers = pod.list("spec.containers").iter().chain(sidecars);
    let ports = containers.flat_map(|container| container.list("ports"));
    let named = ports.filter(|port| !port.str("name").is_empty()).map(|port| Port {
        name: port.str("name").into(),
        protocol: port.str("protocol").into(),
        number: port.int("containerPort").unwrap_or(0),
    });
    named.collect()
}

fn hash_of_labels(pod: &Tree) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, value) in pod.map("metadata.labels").iter() {
        (key, value.as_str()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    #[test]
    fn finds_named_ports_in_containers_and_sidecars() {
        let port = |name: &str, number: i64, protocol: &str| {
            list![tree! { "name" => name, "containerPort" => number, "protocol" => protocol }]
        };
        let init = |policy: &str, name: &str| tree! { "restartPolicy" => policy, "ports" => port(name, 7, "TCP") };
        let spec = tree! {
            "containers" => list![tree! { "ports" => port("http", 8080, "TCP") }],
            "initContainers" => list![init("", "once"), init("Always", "side")],
        };
        let templates = Templates::default();
        let pod = Pod::of(&tree! { "spec" => spec }, &templates);
        let check = |target: Tree, protocol: &str, want: Option<i64>| {
            let port = tree! { "targetPort" => target, "protocol" => protocol };
            assert_eq!(pod.find_port(&port), want, "{port:?}");
        };
        check("http".into(), "TCP", Some(8080));
        check("http".into(), "UDP", None);
        check("side".into(), "TCP", Some(7));
        check("once".into(), "TCP", None);
        check(9.into(), "UDP", Some(9));
    }

    #[test]
    fn interns_ports() {
        let templates = Templates::default();
        let ports = list![tree! { "name" => "http", "containerPort" => 80, "protocol" => "TCP" }];
        let pod = tree! { "spec" => tree! { "containers" => list![tree! { "ports" => ports }] } };
        let (one, other) = (Pod::of(&pod, &templates), Pod::of(&pod, &templates));
        assert!(Arc::ptr_eq(&one.ports, &other.ports));
    }

    #[test]
    fn ignores_irrelevant_changes() {
        let templates = Templates::default();
        let pod = tree! { "metadata" => tree! { "name" => "p", "labels" => tree! { "a" => "1" } } };
        let check = |path: &str, key: &str, value: Tree, want: bool| {
            let mut changed = pod.clone();
            changed.child(path).set(key, value);
            assert_eq!(Pod::of(&pod, &templates) != Pod::of(&changed, &templates), want, "{path} {key}");
        };
        check("metadata", "resourceVersion", "7".into(), false);
        check("metadata.annotations", "x", "y".into(), false);
        check("metadata.labels", "a", "2".into(), true);
        check("metadata", "deletionTimestamp", "2024-01-01T00:00:00Z".into(), true);
        check("spec", "nodeName", "n".into(), true);
        check("status", "podIP", "10.0.0.1".into(), true);
        check("status", "conditions", list![tree! { "type" => "Ready", "status" => "True" }], true);
    }
}
