//! The address of an extension API server: an endpoint of its Service, or the Service's cluster IP.

use std::net::SocketAddr;

use api::Tree;
use http_client::PemError;

use super::services::ServiceReference;
use super::{Aggregator, IdentityError};
use crate::outbound::addresses::is_proxyable;
use crate::outbound::endpoints;

/// Why an extension API server cannot be called. The texts about Services are upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("unsupported service type {0:?}")]
    ServiceType(String),
    #[error("cannot route to service with ClusterIP {0:?}")]
    NoClusterIp(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort { port: i64, name: String },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    #[error("address {0} is not allowed")]
    Address(SocketAddr),
    #[error("caBundle: {0}")]
    CaBundle(#[from] api::base64::DecodeError),
    #[error("unable to load root certificates: {0}")]
    Certificates(#[from] PemError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl Aggregator {
    /// Resolves a service to the address for one request.
    pub(super) fn resolve(&self, reference: &ServiceReference) -> Result<SocketAddr, TargetError> {
        let service = self.storage.object("services/specs", &format!("{}/{}", reference.namespace, reference.name));
        let service = service.ok_or_else(|| TargetError::NoService(reference.name.clone()))?;
        let address = match self.config.routes_to_endpoints {
            true => self.resolve_endpoint(reference, &service)?,
            false => cluster_address(reference, &service)?,
        };
        if is_proxyable(&address.ip()) { Ok(address) } else { Err(TargetError::Address(address)) }
    }

    fn resolve_endpoint(&self, reference: &ServiceReference, service: &Tree) -> Result<SocketAddr, TargetError> {
        let port = find_port(reference, service)?;
        let slices = endpoints::slices(&self.storage, &reference.namespace, &reference.name);
        let endpoint = endpoints::ready(&slices, port.str("name")).into_iter().next();
        endpoint.map(|endpoint| endpoint.address).ok_or_else(|| TargetError::NoEndpoints(reference.name.clone()))
    }
}

fn cluster_address(reference: &ServiceReference, service: &Tree) -> Result<SocketAddr, TargetError> {
    let port = find_port(reference, service)?.int("port").and_then(|port| u16::try_from(port).ok());
    let ip = service.str("spec.clusterIP");
    match (ip.parse(), port) {
        (Ok(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
        _ => Err(TargetError::NoClusterIp(ip.to_string())),
    }
}

/// The port of a Service that has endpoints.
fn find_port<'a>(reference: &ServiceReference, service: &'a Tree) -> Result<&'a Tree, TargetError> {
    let kind = service.str("spec.type");
    if !["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind) {
        return Err(TargetError::ServiceType(kind.to_string()));
    }
    let port = service.list("spec.ports").iter().find(|port| port.int("port") == Some(reference.port));
    port.ok_or_else(|| TargetError::NoPort { port: reference.port, name: reference.name.clone() })
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn routes_to_cluster_ips() {
        let reference = ServiceReference { namespace: "a".to_string(), name: "b".to_string(), port: 443 };
        let check = |kind: &str, ip: &str, port: i64, want: Result<&str, &str>| {
            let ports = list![tree! { "port" => port }];
            let service = tree! { "spec" => tree! { "type" => kind, "clusterIP" => ip, "ports" => ports } };
            let got = cluster_address(&reference, &service).map(|address| address.to_string());
            assert_eq!(got.map_err(|error| error.to_string()), want.map(str::to_string).map_err(str::to_string));
        };
        check("ClusterIP", "10.96.0.5", 443, Ok("10.96.0.5:443"));
        check("NodePort", "fd00::1", 443, Ok("[fd00::1]:443"));
        check("ClusterIP", "None", 443, Err("cannot route to service with ClusterIP \"None\""));
        check("ClusterIP", "10.96.0.5", 444, Err("no service port 443 found for service \"b\""));
        check("ExternalName", "", 443, Err("unsupported service type \"ExternalName\""));
    }
}
