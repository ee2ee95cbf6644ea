//! The `kubernetes` service, through which pods reach the server. Its endpoints contain the server's address.

use std::sync::Arc;

use api::status::Status;
use api::{Tree, list, time, tree};
use stdx::cidr::IpNet;

use super::{MANAGER, Object, StatusChange, edit, find, scope, system_user};
use crate::registry::options::DeleteOptions;
use crate::registry::verbs::delete::delete_one;
use crate::{Config, Server};

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";

fn object(group: &'static str, plural: &'static str, tree: Tree) -> Object {
    Object { group, version: "v1", plural, manager: MANAGER, tree }
}

/// The default range of service addresses.
pub(super) fn cidr(config: &Config) -> Object {
    let cidrs: Vec<Tree> = config.service_cidrs.iter().map(|cidr| Tree::from(cidr.to_string())).collect();
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
    if let Some(address) = config.service_cidrs.first().and_then(IpNet::first) {
        spec.set("clusterIP", address.to_string());
        spec.set("ipFamilyPolicy", "SingleStack");
    }
    let labels = tree! { "component" => "apiserver", "provider" => "kubernetes" };
    tree! { "kind" => "Service", "apiVersion" => "v1", "metadata" => metadata(labels), "spec" => spec }
}

fn service_port(config: &Config) -> Tree {
    tree! { "name" => "https", "protocol" => "TCP", "port" => 443, "targetPort" => i64::from(config.port) }
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
/// store, their addresses stay, and this one's is added.
pub(super) async fn sync(server: &Arc<Server>) -> Result<(), Status> {
    let config = &server.config;
    let key = format!("{NAMESPACE}/{NAME}");
    let stored = |storage: &str| server.registry.storage.object(storage, &key).unwrap_or_default();
    let port = service_port(config);
    if stored("services/specs").list("spec.ports").first().is_some_and(|there| *there != port) {
        let fix = |service: &mut Tree| service.child("spec").set("ports", list![port.clone()]);
        edit(server, ("", "v1", "services", NAMESPACE), NAME, fix).await?;
    }
    let is_shared = server.registry.storage.is_shared;
    if !config.publishes_endpoints || (config.advertise_address.is_loopback() && is_shared) {
        return Ok(());
    }
    if config.advertise_address.is_loopback() {
        return remove_endpoints(server).await;
    }
    let fix = |endpoints: &mut Tree| set_endpoints(endpoints, config, is_shared);
    if is_changed(&stored("services/endpoints"), fix) {
        edit(server, ("", "v1", "endpoints", NAMESPACE), NAME, fix).await?;
    }
    let fix = |slice: &mut Tree| set_slice(slice, config, is_shared);
    if is_changed(&stored("endpointslices"), fix) {
        edit(server, ("discovery.k8s.io", "v1", "endpointslices", NAMESPACE), NAME, fix).await?;
    }
    Ok(())
}

/// Removes the endpoints of an earlier start with another address, at which a sole server does not listen any more.
async fn remove_endpoints(server: &Arc<Server>) -> Result<(), Status> {
    let user = system_user();
    for (group, plural) in [("", "endpoints"), ("discovery.k8s.io", "endpointslices")] {
        let resource = find(server, group, "v1", plural)?;
        if resource.cache()?.get(&resource.key(NAMESPACE, NAME)).is_some() {
            let scope = scope(server, &resource, &user, NAMESPACE, "");
            delete_one(&scope, NAME, &DeleteOptions::default(), &mut Vec::new()).await?;
        }
    }
    Ok(())
}

fn is_changed(stored: &Tree, fix: impl Fn(&mut Tree)) -> bool {
    let mut fixed = stored.clone();
    fix(&mut fixed);
    fixed != *stored
}

fn set_endpoints(endpoints: &mut Tree, config: &Config, is_shared: bool) {
    let own = subset(config);
    let others = endpoints.list("subsets").first().filter(|_| is_shared).map(|subset| subset.list("addresses"));
    let addresses =
        add_address(others.unwrap_or_default(), &own.list("addresses")[0], |address| address.str("ip").into());
    endpoints.set("subsets", list![tree! { "addresses" => addresses, "ports" => own.list("ports").to_vec() }]);
}

fn set_slice(slice: &mut Tree, config: &Config, is_shared: bool) {
    let others = if is_shared { slice.list("endpoints").to_vec() } else { Vec::new() };
    let first = |endpoint: &Tree| endpoint.list("addresses").first().and_then(Tree::as_str).unwrap_or("").to_string();
    slice.set("endpoints", add_address(&others, &endpoint(config), first));
    slice.set("ports", list![endpoint_port(config)]);
}

/// The addresses of all servers, with this one's, sorted: all servers must compute the same list.
fn add_address(others: &[Tree], own: &Tree, key: impl Fn(&Tree) -> String) -> Vec<Tree> {
    let mut all: Vec<Tree> = others.iter().filter(|other| key(other) != key(own)).cloned().collect();
    all.push(own.clone());
    all.sort_by_key(key);
    all
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn service_gets_the_first_address() {
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

    #[test]
    fn servers_that_share_a_store_are_all_endpoints() {
        let config = |last: u8| Config { advertise_address: IpAddr::from([10, 88, 0, last]), ..Config::default() };
        let (first, second) = (config(2), config(1));
        let (mut subsets, mut slices) = (endpoints(&first), slice(&first));
        for _ in 0..2 {
            set_endpoints(&mut subsets, &second, true);
            set_slice(&mut slices, &second, true);
        }
        let addresses = subsets.list("subsets")[0].list("addresses");
        assert_eq!(addresses.iter().map(|address| address.str("ip")).collect::<Vec<_>>(), ["10.88.0.1", "10.88.0.2"]);
        assert_eq!(slices.list("endpoints"), [endpoint(&second), endpoint(&first)]);
        set_endpoints(&mut subsets, &second, false);
        set_slice(&mut slices, &second, false);
        assert_eq!((subsets, slices), (endpoints(&second), slice(&second)));
    }
}
