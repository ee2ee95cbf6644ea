//! The `kubernetes` service: how pods find the server. Its endpoints follow the server's address.

use std::net::IpAddr;
use std::sync::Arc;

use api::status::Status;
use api::{Tree, list, time, tree};

use super::{MANAGER, Object, StatusChange, edit};
use crate::{Config, Server};

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";

fn object(group: &'static str, plural: &'static str, tree: Tree) -> Object {
    Object { group, version: "v1", plural, manager: MANAGER, tree }
}

/// The range that services' addresses come from unless another is added.
pub(super) fn cidr(config: &Config) -> Object {
    let cidrs: Vec<Tree> =
        config.service_cidrs.iter().map(|(address, bits)| Tree::from(format!("{address}/{bits}"))).collect();
    let tree = tree! {
        "kind" => "ServiceCIDR", "apiVersion" => "networking.k8s.io/v1",
        "metadata" => tree! { "name" => NAME }, "spec" => tree! { "cidrs" => cidrs },
    };
    object("networking.k8s.io", "servicecidrs", tree)
}

/// The default range is ready from the start: services need it before any controller runs.
pub(crate) fn cidr_status(server: &Server) -> Option<StatusChange> {
    let stored = server.registry.storage.object("servicecidrs", NAME)?;
    if stored.list("status.conditions").iter().any(|condition| condition.str("type") == "Ready") {
        return None;
    }
    let condition = tree! {
        "type" => "Ready", "status" => "True", "message" => "Kubernetes default Service CIDR is ready",
        "lastTransitionTime" => time::format_seconds(server.now()),
    };
    let tree = tree! {
        "kind" => "ServiceCIDR", "apiVersion" => "networking.k8s.io/v1", "metadata" => tree! { "name" => NAME },
        "status" => tree! { "conditions" => list![condition] },
    };
    Some(StatusChange {
        group: "networking.k8s.io",
        plural: "servicecidrs",
        name: NAME.to_string(),
        manager: "kubernetes-service-cidr-controller",
        tree,
    })
}

pub(super) fn objects(config: &Config) -> Vec<Object> {
    let mut objects = vec![object("", "services", service(config))];
    // Other machines cannot reach a loopback address, so it is not an endpoint.
    if config.publishes_endpoints && !config.advertise_address.is_loopback() {
        objects.push(object("", "endpoints", endpoints(config)));
        objects.push(object("discovery.k8s.io", "endpointslices", slice(config)));
    }
    objects
}

fn metadata(labels: Tree) -> Tree {
    tree! { "name" => NAME, "namespace" => NAMESPACE, "labels" => labels }
}

fn service(config: &Config) -> Tree {
    let mut spec = tree! { "ports" => list![service_port(config)], "type" => "ClusterIP", "sessionAffinity" => "None" };
    if let Some(address) = config.service_cidrs.first().and_then(|(network, _)| first_address(*network)) {
        spec.set("clusterIP", address.to_string());
        spec.set("ipFamilyPolicy", "SingleStack");
    }
    let labels = tree! { "component" => "apiserver", "provider" => "kubernetes" };
    tree! { "kind" => "Service", "apiVersion" => "v1", "metadata" => metadata(labels), "spec" => spec }
}

fn service_port(config: &Config) -> Tree {
    tree! { "name" => "https", "protocol" => "TCP", "port" => 443, "targetPort" => i64::from(config.port) }
}

fn first_address(network: IpAddr) -> Option<IpAddr> {
    match network {
        IpAddr::V4(v4) => Some(IpAddr::from((u32::from(v4).checked_add(1)?).to_be_bytes())),
        IpAddr::V6(v6) => Some(IpAddr::from((u128::from(v6).checked_add(1)?).to_be_bytes())),
    }
}

fn endpoint_port(config: &Config) -> Tree {
    tree! { "name" => "https", "protocol" => "TCP", "port" => i64::from(config.port) }
}

fn endpoints(config: &Config) -> Tree {
    let labels = tree! { "endpointslice.kubernetes.io/skip-mirror" => "true" };
    tree! {
        "kind" => "Endpoints", "apiVersion" => "v1", "metadata" => metadata(labels), "subsets" => list![subset(config)],
    }
}

fn subset(config: &Config) -> Tree {
    let address = tree! { "ip" => config.advertise_address.to_string() };
    tree! { "addresses" => list![address], "ports" => list![endpoint_port(config)] }
}

fn slice(config: &Config) -> Tree {
    let family = if config.advertise_address.is_ipv4() { "IPv4" } else { "IPv6" };
    tree! {
        "kind" => "EndpointSlice", "apiVersion" => "discovery.k8s.io/v1",
        "metadata" => metadata(tree! { "kubernetes.io/service-name" => NAME }), "addressType" => family,
        "endpoints" => list![endpoint(config)], "ports" => list![endpoint_port(config)],
    }
}

fn endpoint(config: &Config) -> Tree {
    tree! {
        "addresses" => list![config.advertise_address.to_string()], "conditions" => tree! { "ready" => true },
    }
}

/// Updates the service and its endpoints if an earlier start had another address or port. If other servers share the
/// store, their addresses stay.
pub(super) async fn sync(server: &Arc<Server>) -> Result<(), Status> {
    let config = &server.config;
    let key = format!("{NAMESPACE}/{NAME}");
    let stored = |storage: &str| server.registry.storage.object(storage, &key).unwrap_or_default();
    let port = service_port(config);
    if stored("services/specs").list("spec.ports").first().is_some_and(|there| *there != port) {
        let fix = |service: &mut Tree| service.child("spec").set("ports", list![port.clone()]);
        edit(server, ("", "v1", "services", NAMESPACE), NAME, fix).await?;
    }
    if server.registry.storage.is_shared || !config.publishes_endpoints || config.advertise_address.is_loopback() {
        return Ok(());
    }
    if *stored("services/endpoints").at("subsets") != list![subset(config)] {
        let fix = |endpoints: &mut Tree| endpoints.set("subsets", list![subset(config)]);
        edit(server, ("", "v1", "endpoints", NAMESPACE), NAME, fix).await?;
    }
    let slices = stored("endpointslices");
    if *slices.at("endpoints") != list![endpoint(config)] || *slices.at("ports") != list![endpoint_port(config)] {
        let fix = |slice: &mut Tree| {
            slice.set("endpoints", list![endpoint(config)]);
            slice.set("ports", list![endpoint_port(config)]);
        };
        edit(server, ("discovery.k8s.io", "v1", "endpointslices", NAMESPACE), NAME, fix).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_takes_the_first_address() {
        let config = Config { port: 16441, ..Config::default() };
        let service = service(&config);
        assert_eq!(service.str("spec.clusterIP"), "10.96.0.1");
        assert_eq!(service.list("spec.ports")[0].int("targetPort"), Some(16441));
    }

    #[test]
    fn a_loopback_address_is_no_endpoint() {
        let count =
            |address: [u8; 4]| objects(&Config { advertise_address: IpAddr::from(address), ..Config::default() }).len();
        assert_eq!(count([127, 0, 0, 1]), 1);
        assert_eq!(count([10, 88, 0, 1]), 3);
        let address = IpAddr::from([10, 88, 0, 1]);
        let alone = Config { advertise_address: address, publishes_endpoints: false, ..Config::default() };
        assert_eq!(objects(&alone).len(), 1);
    }
}
