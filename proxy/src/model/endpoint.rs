//! EndpointSlices.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use api::{Str, Tree};

use super::{Family, Protocol, ServiceKey};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The Service that it belongs to.
    pub service: ServiceKey,
    /// The family of its addresses.
    pub family: Family,
    /// Ports that all its endpoints have.
    pub ports: Vec<SlicePort>,
    /// The endpoints.
    pub endpoints: Vec<Arc<Endpoint>>,
}

/// A port of all endpoints of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: Str,
    /// Its protocol.
    pub protocol: Protocol,
    /// The number at the endpoints.
    pub port: u16,
}

/// An endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The first of its addresses: others are not used.
    pub address: IpAddr,
    /// Whether the endpoint is on this node.
    pub local: bool,
    /// Whether the endpoint may get traffic, which includes all endpoints if the Service publishes those that are not
    /// ready.
    pub ready: bool,
    /// Whether the endpoint is ready apart from terminating.
    pub serving: bool,
    /// Whether the endpoint is being deleted.
    pub terminating: bool,
    /// Zones whose clients should use it.
    pub zones: Box<[Str]>,
    /// Nodes whose clients should use it.
    pub nodes: Box<[Str]>,
}

impl Slice {
    /// None if it belongs to no Service or has names instead of addresses.
    pub fn read(tree: &Tree, node: &str) -> Option<Slice> {
        let service = tree.map("metadata.labels").str(SERVICE_LABEL);
        let family = match tree.str("addressType") {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return None,
        };
        if service.is_empty() {
            return None;
        }
        let endpoints = tree.list("endpoints").iter().filter_map(|endpoint| read_endpoint(endpoint, family, node));
        Some(Slice {
            service: client::key(tree.str("metadata.namespace"), service),
            family,
            ports: tree.list("ports").iter().filter_map(read_port).collect(),
            endpoints: endpoints.map(Arc::new).collect(),
        })
    }
}

/// Whether an endpoint that got new traffic does not get any more.
pub fn has_left(old: Option<&Slice>, new: Option<&Slice>) -> bool {
    let Some(old) = old else { return false };
    let remaining: HashSet<IpAddr> = new.into_iter().flat_map(in_rotation).collect();
    in_rotation(old).any(|address| !remaining.contains(&address))
}

fn in_rotation(slice: &Slice) -> impl Iterator<Item = IpAddr> {
    let is_in = |endpoint: &&Arc<Endpoint>| endpoint.ready && !endpoint.terminating;
    slice.endpoints.iter().filter(is_in).map(|endpoint| endpoint.address)
}

fn read_port(port: &Tree) -> Option<SlicePort> {
    Some(SlicePort {
        name: Str::new(port.str("name")),
        protocol: Protocol::parse(port.str("protocol"))?,
        port: port.int("port").and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)?,
    })
}

fn read_endpoint(tree: &Tree, family: Family, node: &str) -> Option<Endpoint> {
    let address: IpAddr = tree.list("addresses").first()?.as_str()?.parse().ok()?;
    if Family::of(address) != family || is_forbidden(address) {
        return None;
    }
    let conditions = tree.at("conditions");
    let condition = |name: &str, default: bool| conditions.get(name).and_then(Tree::as_bool).unwrap_or(default);
    let hints = |list: &str| tree.list(list).iter().map(|hint| Str::new(hint.str("name"))).collect();
    Some(Endpoint {
        address,
        local: !node.is_empty() && tree.str("nodeName") == node,
        ready: condition("ready", true),
        serving: condition("serving", true),
        terminating: condition("terminating", false),
        zones: hints("hints.forZones"),
        nodes: hints("hints.forNodes"),
    })
}

/// The API refuses these addresses: through them a user could reach the node itself with its own source address.
fn is_forbidden(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_leave_when_they_terminate_or_are_removed() {
        let slice = |endpoints: &str| {
            let text = format!(
                r#"{{"metadata":{{"labels":{{"{SERVICE_LABEL}":"web"}}}},"addressType":"IPv4","endpoints":[{endpoints}]}}"#
            );
            Slice::read(&api::json::decode(text.as_bytes()).expect("JSON"), "").expect("a slice")
        };
        let (a, b) = (r#"{"addresses":["10.0.0.1"],"conditions":{"ready":true}}"#, r#"{"addresses":["10.0.0.2"]}"#);
        let dying = r#"{"addresses":["10.0.0.1"],"conditions":{"ready":true,"terminating":true}}"#;
        for (old, new, left) in [
            (a.to_string(), format!("{a},{b}"), false),
            (format!("{a},{b}"), b.to_string(), true),
            (a.to_string(), dying.to_string(), true),
            (dying.to_string(), String::new(), false),
        ] {
            assert_eq!(has_left(Some(&slice(&old)), Some(&slice(&new))), left, "{old} {new}");
        }
        assert!(has_left(Some(&slice(a)), None) && !has_left(None, Some(&slice(a))));
    }
}
