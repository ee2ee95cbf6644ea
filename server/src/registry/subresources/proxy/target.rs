//! Where a proxied request goes: the address of a pod, of a ready endpoint of a service, or of a node's agent.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::status::Status;
use http_client::{Trust, tls};
use rustls::ClientConfig;

use crate::call::Call;
use crate::outbound::endpoints::{self, Endpoint};
use crate::registry::Registry;
use crate::registry::verbs;
use crate::storage::resource::Resource;

#[derive(Clone)]
pub(crate) struct Target {
    pub host: String,
    pub port: u16,
    /// None for plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// How long a connection is tried.
    pub timeout: Duration,
}

/// For those behind the API, who have no timeout of their own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

impl Target {
    /// One whose certificate has no known CA, if it has any.
    pub(crate) fn plain(is_tls: bool, address: SocketAddr) -> Result<Target, Status> {
        // As upstream's proxy: certificates of pods are not verified.
        let tls = is_tls.then(|| tls::config(&Trust::Anybody, None, &[]).map(Arc::new)).transpose();
        let tls = tls.map_err(Status::internal)?;
        Ok(Target { host: address.ip().to_string(), port: address.port(), tls, timeout: CONNECT_TIMEOUT })
    }

    /// `HOST:PORT`
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority())
    }
}

/// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub(crate) fn split_id(id: &str) -> Option<(bool, &str, &str)> {
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

pub(crate) async fn pod(registry: &Registry, resource: &Arc<Resource>, call: &Call) -> Result<Target, Status> {
    let id = &call.head.info.name;
    let (tls, name, port) = split_id(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {id:?}")))?;
    let pod = verbs::scope(registry, resource, call, false)?.current_object(name).await?;
    let ip = pod.list("status.podIPs").first().map_or("", |address| address.str("ip"));
    let ip = ip.parse().ok().filter(is_proxyable).ok_or_else(|| Status::bad_request("address not allowed"))?;
    let port = if port.is_empty() { first_port(&pod) } else { port.parse().ok() };
    let default = if tls { 443 } else { 80 };
    Target::plain(tls, SocketAddr::new(ip, port.unwrap_or(default)))
}

/// The server must not be led to itself or to its neighbours on the link, whichever way the address is written.
fn is_proxyable(ip: &IpAddr) -> bool {
    let ip = ip.to_canonical();
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

pub(crate) fn service(registry: &Registry, namespace: &str, id: &str) -> Result<Target, Status> {
    let invalid = || Status::bad_request(format!("invalid service request {id:?}"));
    let (tls, name, port) = split_id(id).ok_or_else(invalid)?;
    let port = match port.parse::<i64>() {
        Ok(number) => port_name(registry, namespace, name, number)?,
        Err(_) => port.to_string(),
    };
    let slices = endpoints::slices(&registry.storage, namespace, name);
    // A client that writes slices could name any address: only a pod's own is used.
    let pod_has = |endpoint: &Endpoint<'_>| {
        let pod = endpoint.target;
        if !is_proxyable(&endpoint.address.ip()) || pod.str("kind") != "Pod" || pod.str("namespace") != namespace {
            return false;
        }
        let pod = registry.storage.object("pods", &format!("{namespace}/{}", pod.str("name"))).unwrap_or_default();
        let ip = endpoint.address.ip().to_string();
        pod.list("status.podIPs").iter().any(|address| address.str("ip") == ip)
    };
    let found = endpoints::ready(&slices, &port).into_iter().find(pod_has);
    let missing = || Status::service_unavailable(format!("no endpoints available for service {name:?}"));
    Target::plain(tls, found.ok_or_else(missing)?.address)
}

/// The kubelet of a node, or another port of the node's address.
pub(crate) async fn node(registry: &Registry, id: &str) -> Result<Target, Status> {
    let (tls, name, port) = split_id(id).ok_or_else(|| Status::bad_request(format!("invalid node request {id:?}")))?;
    let kubelet = crate::registry::subresources::node::kubelet(registry, name, "nodes").await?;
    if port.is_empty() || port == kubelet.target.port.to_string() {
        return Ok(kubelet.target);
    }
    let port: u16 = port.parse().map_err(|_| Status::bad_request(format!("invalid node request {id:?}")))?;
    let found = tokio::net::lookup_host((kubelet.target.host.as_str(), port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|error| Status::bad_request(error.to_string()))?.collect();
    Target::plain(tls, proxyable_address(&addresses)?)
}

/// The address that is dialed is one that was judged: a name that is resolved again may lead elsewhere.
fn proxyable_address(addresses: &[SocketAddr]) -> Result<SocketAddr, Status> {
    match addresses {
        [first, ..] if addresses.iter().all(|address| is_proxyable(&address.ip())) => Ok(*first),
        _ => Err(Status::bad_request("address not allowed")),
    }
}

/// The name of the service's port of this number.
fn port_name(registry: &Registry, namespace: &str, name: &str, number: i64) -> Result<String, Status> {
    let service = registry.storage.object("services/specs", &format!("{namespace}/{name}"));
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
            ("255.255.255.255", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:0.0.0.0", false),
        ];
        for (ip, want) in cases {
            assert_eq!(is_proxyable(&ip.parse().expect("an address")), want, "{ip}");
        }
    }

    #[test]
    fn every_address_of_a_name_must_be_allowed() {
        let check = |addresses: &[&str], want: Option<&str>| {
            let parse = |address: &str| address.parse().expect("an address");
            let addresses: Vec<SocketAddr> = addresses.iter().copied().map(parse).collect();
            assert_eq!(proxyable_address(&addresses).ok(), want.map(parse), "{addresses:?}");
        };
        check(&["10.0.0.1:80", "10.0.0.2:80"], Some("10.0.0.1:80"));
        check(&["10.0.0.1:80", "127.0.0.1:80"], None);
        check(&["[::ffff:127.0.0.1]:80"], None);
        check(&[], None);
    }
}
