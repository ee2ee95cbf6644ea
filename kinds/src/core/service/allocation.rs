//! The addresses and ports that a service needs. The server owns the pools; these functions only read services.

use std::collections::{BTreeMap, BTreeSet};

use api::Tree;

use super::{NONE, is_headless, needs_cluster_ip, needs_health_check_node_port, needs_node_ports};

/// A node port is identified by protocol and number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePort {
    pub protocol: String,
    pub number: i64,
}

/// The cluster IPs of a service; none if it is headless or an external name.
pub fn cluster_ips(service: &Tree) -> Vec<&str> {
    if !needs_cluster_ip(service) || is_headless(service) {
        return Vec::new();
    }
    service.list("spec.clusterIPs").iter().filter_map(Tree::as_str).filter(|ip| !ip.is_empty() && *ip != NONE).collect()
}

/// The IP families of missing cluster IPs; `families` must be set.
pub fn missing_cluster_ips(service: &Tree) -> Vec<&str> {
    if !needs_cluster_ip(service) || is_headless(service) {
        return Vec::new();
    }
    let given = cluster_ips(service).len();
    service.list("spec.ipFamilies").iter().skip(given).filter_map(Tree::as_str).collect()
}

/// Appends an allocated address.
pub fn add_cluster_ip(service: &mut Tree, ip: &str) {
    let spec = service.child("spec");
    if spec.str("clusterIP").is_empty() {
        spec.set("clusterIP", ip);
    }
    spec.list_entry("clusterIPs").push(Tree::from(ip));
}

/// The requested and allocated node ports of a service, including the health check port.
pub fn node_ports(service: &Tree) -> BTreeSet<NodePort> {
    let mut ports: BTreeSet<NodePort> = service
        .list("spec.ports")
        .iter()
        .filter(|port| port.int("nodePort").unwrap_or(0) != 0)
        .map(|port| NodePort { protocol: port.str("protocol").to_string(), number: port.int("nodePort").unwrap_or(0) })
        .collect();
    if let Some(number) = service.int("spec.healthCheckNodePort").filter(|number| *number != 0) {
        ports.insert(NodePort { protocol: "TCP".to_string(), number });
    }
    ports
}

/// The indexes in `spec.ports` that need a node port. Ports with equal numbers and different protocols may share a
/// node port, so the server calls this again after each allocation.
pub fn missing_node_ports(service: &Tree) -> Vec<usize> {
    if !needs_node_ports(service) {
        return Vec::new();
    }
    let ports = service.list("spec.ports").iter().enumerate();
    ports.filter(|(_, port)| port.int("nodePort").unwrap_or(0) == 0).map(|(index, _)| index).collect()
}

/// Whether a health check port must be allocated.
pub fn needs_new_health_check_node_port(service: &Tree) -> bool {
    needs_health_check_node_port(service) && service.int("spec.healthCheckNodePort").unwrap_or(0) == 0
}

/// A node port that this service uses for the same port with another protocol, which a new port may share.
pub fn shared_node_port(service: &Tree, index: usize) -> Option<i64> {
    let ports = service.list("spec.ports");
    let wanted = ports.get(index)?;
    ports
        .iter()
        .find(|port| {
            port.int("port") == wanted.int("port")
                && port.str("protocol") != wanted.str("protocol")
                && port.int("nodePort").unwrap_or(0) != 0
        })
        .and_then(|port| port.int("nodePort"))
}

/// The node port of another port with the same number, whatever its protocol.
pub fn node_port_of_same_port(service: &Tree, index: usize) -> Option<i64> {
    let ports = service.list("spec.ports");
    let number = ports.get(index)?.int("port");
    let mut same = ports.iter().filter(|port| port.int("port") == number).filter_map(|port| port.int("nodePort"));
    same.find(|number| *number != 0)
}

/// Whether a protocol and number occur twice, which validation rejects.
pub fn has_duplicate_ports(service: &Tree) -> bool {
    let mut seen = BTreeSet::new();
    !service.list("spec.ports").iter().all(|port| seen.insert((port.str("protocol"), port.int("port"))))
}

/// Allocated values that an update omits are kept.
pub(super) fn keep_allocated(service: &mut Tree, old: &Tree) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        keep_cluster_ips(service, old);
    }
    if needs_node_ports(old) && needs_node_ports(service) {
        keep_node_ports(service, old);
    }
    if needs_health_check_node_port(old) && needs_new_health_check_node_port(service) {
        let number = old.int("spec.healthCheckNodePort").unwrap_or(0);
        service.child("spec").set("healthCheckNodePort", number);
    }
}

fn keep_cluster_ips(service: &mut Tree, old: &Tree) {
    let ip = old.str("spec.clusterIP");
    if service.str("spec.clusterIP").is_empty() && !ip.is_empty() {
        service.child("spec").set("clusterIP", ip);
    }
    // Even if `clusterIP` has changed: `clusterIPs` is updated afterwards.
    if service.list("spec.clusterIPs").is_empty() && !old.list("spec.clusterIPs").is_empty() {
        let ips = old.at("spec.clusterIPs").clone();
        service.child("spec").set("clusterIPs", ips);
    }
}

/// By port name; a number requested by another port is not used twice.
fn keep_node_ports(service: &mut Tree, old: &Tree) {
    let numbers = |service: &Tree| -> BTreeSet<i64> {
        service
            .list("spec.ports")
            .iter()
            .filter_map(|port| port.int("nodePort"))
            .filter(|number| *number != 0)
            .collect()
    };
    let mut used: BTreeSet<i64> = numbers(old).intersection(&numbers(service)).copied().collect();
    let by_name: BTreeMap<&str, i64> =
        old.list("spec.ports").iter().map(|port| (port.str("name"), port.int("nodePort").unwrap_or(0))).collect();
    for port in service.list_mut("spec.ports") {
        if port.int("nodePort").unwrap_or(0) != 0 {
            continue;
        }
        let number = by_name.get(port.str("name")).copied();
        if let Some(number) = number.filter(|number| *number != 0)
            && used.insert(number)
        {
            port.set("nodePort", number);
        }
    }
}

/// The allocations that are released when `old` becomes `new` (null on deletion).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReleasedAllocations {
    pub cluster_ips: Vec<String>,
    pub node_ports: Vec<NodePort>,
}

/// The addresses and ports that an update releases.
pub fn released(old: &Tree, new: &Tree) -> ReleasedAllocations {
    let kept = cluster_ips(new);
    let ports = node_ports(new);
    ReleasedAllocations {
        cluster_ips: cluster_ips(old).into_iter().filter(|ip| !kept.contains(ip)).map(str::to_string).collect(),
        node_ports: node_ports(old).into_iter().filter(|port| !ports.contains(port)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn deleted_services_release_everything() {
        let service = tree! { "spec" => tree! {
            "type" => "NodePort",
            "clusterIPs" => list!["10.0.0.1"],
            "ports" => list![tree! { "port" => 80, "protocol" => "TCP", "nodePort" => 30000 }],
        } };
        let port = NodePort { protocol: "TCP".into(), number: 30000 };
        let want = ReleasedAllocations { cluster_ips: vec!["10.0.0.1".into()], node_ports: vec![port] };
        assert_eq!(released(&service, &Tree::Null), want);
        assert_eq!(released(&service, &service), ReleasedAllocations::default());
    }

    #[test]
    fn reports_missing_allocations() {
        let service = tree! { "spec" => tree! {
            "type" => "NodePort",
            "ipFamilies" => list!["IPv4"],
            "ports" => list![
                tree! { "port" => 53, "protocol" => "TCP", "nodePort" => 30053 },
                tree! { "port" => 53, "protocol" => "UDP" },
            ],
        } };
        assert_eq!(missing_cluster_ips(&service), ["IPv4"]);
        assert_eq!(missing_node_ports(&service), [1]);
        assert_eq!(shared_node_port(&service, 1), Some(30053));
    }
}
