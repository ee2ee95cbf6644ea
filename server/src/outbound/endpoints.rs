//! The ready endpoints of a service, from the EndpointSlices of the cache.

use std::net::SocketAddr;
use std::sync::Arc;

use api::Tree;

use super::addresses::is_proxyable;
use crate::storage::Storage;

/// An endpoint of a service.
pub(crate) struct Endpoint<'a> {
    pub address: SocketAddr,
    /// The target of the endpoint according to the slice: authors of slices can name any object.
    pub target: &'a Tree,
}

/// The slices of a service.
pub(crate) fn slices(storage: &Storage, namespace: &str, service: &str) -> Vec<Tree> {
    let Some(cache) = storage.caches.get("endpointslices") else { return Vec::new() };
    let snapshot = cache.snapshot();
    let start: Arc<str> = Arc::from(format!("{namespace}/"));
    let own = snapshot.map.range(start..).map(|(_, item)| item).take_while(|item| item.namespace() == namespace);
    let of_service = |slice: &Tree| slice.map("metadata.labels").str("kubernetes.io/service-name") == service;
    own.map(|item| item.tree()).filter(of_service).collect()
}

/// The ready endpoints of a port, by its name, in a random order: any of them will do.
pub(crate) fn ready<'a>(slices: &'a [Tree], port: &str) -> Vec<Endpoint<'a>> {
    let mut found = Vec::new();
    // Host names are not resolved, and a name of digits would be parsed as an address.
    for slice in slices.iter().filter(|slice| ["IPv4", "IPv6"].contains(&slice.str("addressType"))) {
        let number = slice.list("ports").iter().find(|own| own.str("name") == port).and_then(|own| own.int("port"));
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
        for endpoint in slice.list("endpoints") {
            if endpoint.at("conditions.ready").as_bool() == Some(false) {
                continue;
            }
            let addresses = endpoint.list("addresses").iter().filter_map(|address| address.as_str()?.parse().ok());
            let target = endpoint.at("targetRef");
            found.extend(addresses.map(|ip| Endpoint { address: SocketAddr::new(ip, number), target }));
        }
    }
    let start = usize::try_from(crate::common::ids::below(found.len() as u64)).unwrap_or(0);
    found.rotate_left(start);
    found
}

/// Why a service cannot be called. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("service {0:?} not found")]
    NotFound(String),
    #[error("no port {0}")]
    NoPort(i64),
    #[error("no service port {port} found for service {name:?}")]
    NoServicePort { port: i64, name: String },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    #[error("address {0:?} not allowed")]
    Address(String),
}

/// Host and port at which the server itself calls a port of a service.
pub(crate) fn for_service(
    storage: &Storage,
    namespace: &str,
    name: &str,
    port: i64,
) -> Result<(String, u16), ServiceError> {
    let service = storage.object("services/specs", &format!("{namespace}/{name}"));
    let service = service.ok_or_else(|| ServiceError::NotFound(name.to_string()))?;
    if service.str("spec.type") == "ExternalName" {
        let port = u16::try_from(port).map_err(|_| ServiceError::NoPort(port))?;
        return Ok((service.str("spec.externalName").to_string(), port));
    }
    let own = service.list("spec.ports").iter().find(|own| own.int("port") == Some(port));
    let own = own.ok_or_else(|| ServiceError::NoServicePort { port, name: name.to_string() })?;
    let slices = slices(storage, namespace, name);
    let found = ready(&slices, own.str("name")).into_iter().find(|endpoint| is_proxyable(&endpoint.address.ip()));
    let found = found.ok_or_else(|| ServiceError::NoEndpoints(name.to_string()))?;
    Ok((found.address.ip().to_string(), found.address.port()))
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn only_ready_endpoints_of_the_port_are_found() {
        let endpoint = |ip: &str, ready: Tree| {
            tree! { "addresses" => list![ip], "conditions" => tree! { "ready" => ready } }
        };
        let mut slices = [tree! {
            "addressType" => "IPv4",
            "ports" => list![tree! { "name" => "web", "port" => 8080 }],
            "endpoints" => list![
                endpoint("10.0.0.1", Tree::Bool(true)),
                endpoint("10.0.0.2", Tree::Bool(false)),
                endpoint("10.0.0.3", Tree::Null),
            ],
        }];
        let found = |slices: &[Tree], port: &str| {
            let mut found: Vec<String> = ready(slices, port).iter().map(|found| found.address.to_string()).collect();
            found.sort();
            found
        };
        assert_eq!(found(&slices, "web"), ["10.0.0.1:8080", "10.0.0.3:8080"]);
        assert!(found(&slices, "other").is_empty());
        slices[0].set("addressType", "FQDN");
        assert!(ready(&slices, "web").is_empty(), "names are not addresses");
    }
}
