//! Where a proxied request goes: the address of a pod, or of a ready endpoint of a service.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::Tree;
use api::status::Status;

use crate::Server;
use crate::call::Call;
use crate::endpoints::{self, Endpoint};
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
    let slices = endpoints::slices(server, namespace, name);
    // Whoever writes slices could name any address: only a pod's own is used.
    let pod_has = |endpoint: &Endpoint<'_>| {
        let pod = endpoint.target;
        if pod.str("kind") != "Pod" || pod.str("namespace") != namespace {
            return false;
        }
        let pod = server.object("pods", &format!("{namespace}/{}", pod.str("name"))).unwrap_or_default();
        let ip = endpoint.address.ip().to_string();
        pod.list("status.podIPs").iter().any(|address| address.str("ip") == ip)
    };
    let found = endpoints::ready(&slices, &port).into_iter().find(pod_has);
    let found = found.map(|endpoint| Target { tls, address: endpoint.address });
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

#[cfg(test)]
mod tests {
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
}
