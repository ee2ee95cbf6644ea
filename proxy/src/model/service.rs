//! Services.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Str, Tree};
use network::cidr::IpNet;

use super::{Family, PortName, Protocol, ServiceKey};

/// The affinity timeout of a Service that does not set one.
const DEFAULT_AFFINITY: i64 = 10800;

/// A Service with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its namespace and name.
    pub key: ServiceKey,
    /// A port for each address family that the Service has.
    pub ports: Vec<ServicePort>,
    /// The port at which load balancers look for local endpoints.
    pub health_check_node_port: Option<u16>,
}

/// A port of a Service in one address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its Service, name, protocol and family.
    pub name: PortName,
    /// When the Service was created: of two Services with the same external address, the older one gets its packets.
    pub created: Str,
    /// The address inside the cluster.
    pub cluster_ip: IpAddr,
    /// The port at all addresses of the Service.
    pub port: u16,
    /// The port at the node's addresses.
    pub node_port: Option<u16>,
    /// How long a client stays with its endpoint.
    pub affinity: Option<Duration>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of load balancers that deliver packets with the address as destination.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Sources that may use the load balancers; empty for all.
    pub source_ranges: Vec<IpNet>,
    /// Whether traffic inside the cluster stays on the node.
    pub internal_local: bool,
    /// Whether traffic from outside stays on the node.
    pub external_local: bool,
}

impl ServicePort {
    /// Whether the port has addresses besides the cluster IP.
    pub fn is_external(&self) -> bool {
        self.node_port.is_some() || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Whether any traffic goes to endpoints of all nodes. External traffic with the policy Local needs them too, for
    /// clients on this node.
    pub fn uses_cluster_endpoints(&self) -> bool {
        !self.internal_local || self.is_external()
    }

    /// Whether any traffic goes to endpoints of this node only.
    pub fn uses_local_endpoints(&self) -> bool {
        self.internal_local || (self.external_local && self.is_external())
    }
}

impl Service {
    /// None if nothing is forwarded: a headless Service, an ExternalName, or one without an address yet.
    pub fn read(tree: &Tree) -> Option<Service> {
        let spec = tree.at("spec");
        let cluster_ip = spec.str("clusterIP");
        if spec.str("type") == "ExternalName" || cluster_ip.is_empty() || cluster_ip == "None" {
            return None;
        }
        let key: ServiceKey = client::key_of(tree);
        let listed = spec.list("clusterIPs").iter().filter_map(Tree::as_str);
        let mut addresses: Vec<IpAddr> = listed.filter_map(|text| text.parse().ok()).collect();
        if addresses.is_empty() {
            addresses.extend(cluster_ip.parse::<IpAddr>());
        }
        let ports = addresses.iter().flat_map(|address| {
            let key = &key;
            spec.list("ports").iter().filter_map(move |port| read_port(key, tree, *address, port))
        });
        Some(Service { ports: ports.collect(), health_check_node_port: health_check_node_port(spec), key })
    }
}

fn health_check_node_port(spec: &Tree) -> Option<u16> {
    let is_needed = spec.str("type") == "LoadBalancer" && spec.str("externalTrafficPolicy") == "Local";
    port_number(spec.int("healthCheckNodePort")).filter(|_| is_needed)
}

fn read_port(key: &ServiceKey, tree: &Tree, cluster_ip: IpAddr, port: &Tree) -> Option<ServicePort> {
    let (spec, family) = (tree.at("spec"), Family::of(cluster_ip));
    Some(ServicePort {
        name: PortName {
            service: Arc::clone(key),
            port: Str::new(port.str("name")),
            protocol: Protocol::parse(port.str("protocol"))?,
            family,
        },
        created: Str::new(tree.str("metadata.creationTimestamp")),
        cluster_ip,
        port: port_number(port.int("port"))?,
        node_port: port_number(port.int("nodePort")),
        affinity: affinity(spec),
        external_ips: addresses(family, spec.list("externalIPs").iter().filter_map(Tree::as_str)),
        load_balancer_ips: addresses(family, load_balancers(tree)),
        source_ranges: source_ranges(family, spec),
        internal_local: spec.str("internalTrafficPolicy") == "Local",
        external_local: spec.str("externalTrafficPolicy") == "Local" && is_externally_accessible(spec),
    })
}

fn is_externally_accessible(spec: &Tree) -> bool {
    matches!(spec.str("type"), "LoadBalancer" | "NodePort") || !spec.list("externalIPs").is_empty()
}

fn port_number(number: Option<i64>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)
}

fn affinity(spec: &Tree) -> Option<Duration> {
    let seconds = spec.int("sessionAffinityConfig.clientIP.timeoutSeconds").unwrap_or(DEFAULT_AFFINITY);
    let seconds = u64::try_from(seconds).unwrap_or(0).max(1);
    (spec.str("sessionAffinity") == "ClientIP").then(|| Duration::from_secs(seconds))
}

fn addresses<'a>(family: Family, texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    texts.filter_map(|text| text.parse().ok()).filter(|address| Family::of(*address) == family).collect()
}

/// A load balancer in the mode Proxy sends packets to node ports: its own address must not be captured.
fn load_balancers(tree: &Tree) -> impl Iterator<Item = &str> {
    let ingress = tree.list("status.loadBalancer.ingress").iter();
    ingress.filter(|one| matches!(one.str("ipMode"), "" | "VIP")).map(|one| one.str("ip"))
}

/// The API allows spaces around a range. A range of all addresses is the same as no range.
fn source_ranges(family: Family, spec: &Tree) -> Vec<IpNet> {
    let texts = spec.list("loadBalancerSourceRanges").iter().filter_map(Tree::as_str);
    let ranges: Vec<IpNet> = texts.filter_map(|text| text.trim().parse().ok()).collect();
    let ranges: Vec<IpNet> = ranges.into_iter().filter(|range| Family::of(range.address) == family).collect();
    if ranges.iter().any(|range| range.prefix() == 0) { Vec::new() } else { ranges }
}
