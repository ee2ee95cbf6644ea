//! The target of a proxied request: the address of a pod, of a ready endpoint of a service, or of a node's kubelet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::status::Status;
use http_client::{Address, Trust, tls};
use rustls::ClientConfig;

use crate::call::Call;
use crate::outbound::addresses::{is_proxyable, proxyable_address};
use crate::outbound::endpoints::{self, Endpoint};
use crate::outbound::tunnels::Dialer;
use crate::registry::Registry;
use crate::registry::verbs;
use crate::storage::resource::Resource;

#[derive(Clone)]
pub(crate) struct Target {
    pub host: String,
    pub port: u16,
    /// None for plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// The name in the target's certificate, if it is not the host.
    pub server_name: Option<String>,
    /// How long a connection is tried.
    pub timeout: Duration,
    /// The node whose kubelet it is; None for another target.
    pub node: Option<String>,
    /// None to connect directly.
    pub dialer: Option<Arc<Dialer>>,
}

/// The timeout for targets behind the API, which have no timeout of their own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

impl Target {
    /// A target whose certificate, if it has one, is not verified.
    pub(crate) fn plain(is_tls: bool, address: SocketAddr, dialer: Option<Arc<Dialer>>) -> Result<Target, Status> {
        // Like upstream's proxy: certificates of pods are not verified.
        let tls = is_tls.then(|| tls::config(&Trust::InsecureSkipVerify, None, &[]).map(Arc::new)).transpose();
        let tls = tls.map_err(Status::internal)?;
        Ok(Target { tls, server_name: None, ..Target::at(address, dialer) })
    }

    /// A target that presents a certificate with this name.
    pub(crate) fn verified(
        address: SocketAddr,
        tls: Arc<ClientConfig>,
        server_name: String,
        dialer: Option<Arc<Dialer>>,
    ) -> Target {
        Target { tls: Some(tls), server_name: Some(server_name), ..Target::at(address, dialer) }
    }

    fn at(address: SocketAddr, dialer: Option<Arc<Dialer>>) -> Target {
        let (host, port) = (address.ip().to_string(), address.port());
        Target { host, port, tls: None, server_name: None, timeout: CONNECT_TIMEOUT, node: None, dialer }
    }

    /// `HOST:PORT`
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The same target without HTTP/2, which cannot change to other protocols.
    pub(crate) fn with_http1(&self) -> Target {
        let tls = self.tls.as_deref().map(|config| Arc::new(tls::with_alpn(config, &[tls::HTTP1])));
        Target { tls, ..self.clone() }
    }

    /// The address, with the name in the certificate.
    pub(crate) fn address(&self) -> Address {
        let name = self.server_name.as_ref().unwrap_or(&self.host).clone();
        Address { name, ..Address::new(self.tls.is_some(), &self.host, self.port) }
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
    Target::plain(tls, SocketAddr::new(ip, port.unwrap_or(default)), Some(registry.dialer.clone()))
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
    // A client that writes slices could name any address: only the pod's own address is used.
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
    Target::plain(tls, found.ok_or_else(missing)?.address, Some(registry.dialer.clone()))
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
    let address = proxyable_address(&addresses).ok_or_else(|| Status::bad_request("address not allowed"))?;
    Target::plain(tls, address, Some(registry.dialer.clone()))
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
}
