//! Where a proxied request goes: the address of a pod, or of a ready endpoint of a service.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::Tree;
use api::status::Status;

use crate::Server;
use crate::call::Call;
use crate::resource::Resource;
use crate::verbs;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tls: bool,
    pub address: SocketAddr,
}

/// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub fn split_id(id: &str) -> Option<(bool, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts[..] {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    let known = ["", "http", "https"].contains(&scheme);
    (known && !name.is_empty()).then_some((scheme == "https", name, port))
}

pub async fn pod(server: &Server, resource: &Arc<Resource>, call: &Call) -> Result<Target, Status> {
    let id = &call.info.name;
    let (tls, name, port) = split_id(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {id:?}")))?;
    let pod = verbs::scope(server, resource, call, false)?.current_object(name).await?;
    let ip = pod.list("status.podIPs").first().map_or("", |address| address.str("ip"));
    let ip = ip.parse().ok().filter(is_proxyable).ok_or_else(|| Status::bad_request("address not allowed"))?;
    let port = if port.is_empty() { first_port(&pod) } else { port.parse().ok() };
    let default = if tls { 443 } else { 80 };
    Ok(Target { tls, address: SocketAddr::new(ip, port.unwrap_or(default)) })
}

/// The server must not be led to itself or to its neighbours on the link.
fn is_proxyable(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    !(ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || link_local)
}

fn first_port(pod: &Tree) -> Option<u16> {
    let ports = pod.list("spec.containers").iter().flat_map(|container| container.list("ports"));
    ports.filter_map(|port| u16::try_from(port.int("containerPort")?).ok()).next()
}

pub fn service(server: &Server, namespace: &str, id: &str) -> Result<Target, Status> {
    let invalid = || Status::bad_request(format!("invalid service request {id:?}"));
    let (tls, name, port) = split_id(id).ok_or_else(invalid)?;
    let port = match port.parse::<i64>() {
        Ok(number) => port_name(server, namespace, name, number)?,
        Err(_) => port.to_string(),
    };
    let slices = slices(server, namespace, name);
    let pod_has = |pod: &Tree, ip: &str| {
        let key = format!("{namespace}/{}", pod.str("name"));
        let pod = server.object("pods", &key).unwrap_or_default();
        pod.list("status.podIPs").iter().any(|address| address.str("ip") == ip)
    };
    let mut candidates = candidates(&slices, namespace, &port);
    // Any of them will do; a random start spreads the load.
    let start = usize::try_from(crate::ids::below(candidates.len() as u64)).unwrap_or(0);
    candidates.rotate_left(start);
    let found = candidates.into_iter().find(|candidate| pod_has(candidate.pod, &candidate.address.ip().to_string()));
    let found = found.map(|candidate| Target { tls, address: candidate.address });
    found.ok_or_else(|| Status::service_unavailable(format!("no endpoints available for service {name:?}")))
}

/// The name of the service's port of this number.
fn port_name(server: &Server, namespace: &str, name: &str, number: i64) -> Result<String, Status> {
    let service = server.object("services/specs", &format!("{namespace}/{name}"));
    let service = service.ok_or_else(|| Status::not_found("", "services", name))?;
    let port = service.list("spec.ports").iter().find(|port| port.int("port") == Some(number));
    let missing = || Status::service_unavailable(format!("no service port {number} found for service {name:?}"));
    port.map(|port| port.str("name").to_string()).ok_or_else(missing)
}

fn slices(server: &Server, namespace: &str, service: &str) -> Vec<Tree> {
    let Some(cache) = server.caches.get("endpointslices") else { return Vec::new() };
    let snapshot = cache.snapshot();
    let start: Arc<str> = Arc::from(format!("{namespace}/"));
    let own = snapshot.map.range(start..).map(|(_, item)| item).take_while(|item| item.namespace() == namespace);
    let of_service = |slice: &Tree| slice.map("metadata.labels").str("kubernetes.io/service-name") == service;
    own.map(|item| item.tree()).filter(of_service).collect()
}

struct Candidate<'a> {
    address: SocketAddr,
    /// The pod that the endpoint says it is; checked before it is used, since anyone who writes slices
    /// could name any address.
    pod: &'a Tree,
}

/// Ready endpoints of a port that belong to a pod of the namespace.
fn candidates<'a>(slices: &'a [Tree], namespace: &str, port: &str) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for slice in slices {
        let number = slice.list("ports").iter().find(|own| own.str("name") == port).and_then(|own| own.int("port"));
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
        for endpoint in slice.list("endpoints") {
            let pod = endpoint.at("targetRef");
            let ready = endpoint.at("conditions.ready").as_bool() != Some(false);
            if !ready || pod.str("kind") != "Pod" || pod.str("namespace") != namespace {
                continue;
            }
            let addresses = endpoint.list("addresses").iter().filter_map(|address| address.as_str()?.parse().ok());
            found.extend(addresses.map(|ip| Candidate { address: SocketAddr::new(ip, number), pod }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn names_may_carry_a_scheme_and_a_port() {
        let cases = [
            ("a", Some((false, "a", ""))),
            ("a:80", Some((false, "a", "80"))),
            ("https:a:web", Some((true, "a", "web"))),
            ("http:a:", Some((false, "a", ""))),
            ("ftp:a:1", None),
            (":1", None),
            ("a:b:c:d", None),
        ];
        for (id, want) in cases {
            assert_eq!(split_id(id), want, "{id}");
        }
    }

    #[test]
    fn some_addresses_are_not_for_others() {
        let cases = [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ];
        for (ip, want) in cases {
            assert_eq!(is_proxyable(&ip.parse().expect("an address")), want, "{ip}");
        }
    }

    #[test]
    fn only_ready_endpoints_of_the_port_are_candidates() {
        let endpoint = |ip: &str, ready: Tree, kind: &str| {
            tree! {
                "addresses" => list![ip], "conditions" => tree! { "ready" => ready },
                "targetRef" => tree! { "kind" => kind, "namespace" => "n", "name" => "p" },
            }
        };
        let slice = tree! {
            "ports" => list![tree! { "name" => "web", "port" => 8080 }],
            "endpoints" => list![
                endpoint("10.0.0.1", Tree::Bool(true), "Pod"),
                endpoint("10.0.0.2", Tree::Bool(false), "Pod"),
                endpoint("10.0.0.3", Tree::Null, "Pod"),
                endpoint("10.0.0.4", Tree::Bool(true), "Node"),
            ],
        };
        let slices = [slice];
        let found = |port: &str| -> Vec<String> {
            candidates(&slices, "n", port).iter().map(|candidate| candidate.address.to_string()).collect()
        };
        assert_eq!(found("web"), ["10.0.0.1:8080", "10.0.0.3:8080"]);
        assert!(found("other").is_empty());
    }
}
