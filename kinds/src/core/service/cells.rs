//! The row of `kubectl get services`.

use api::Tree;

use super::{CLUSTER_IP, EXTERNAL_NAME, LOAD_BALANCER, NODE_PORT, kind_of};
use crate::cells;

pub(super) fn cells(service: &Tree, now: i64) -> Vec<Tree> {
    vec![
        cells::name(service),
        Tree::from(kind_of(service)),
        Tree::from(service.list("spec.clusterIPs").first().and_then(Tree::as_str).unwrap_or("<none>")),
        Tree::from(external_ip(service)),
        Tree::from(ports(service)),
        cells::age(service, now),
        Tree::from(cells::labels(service.map("spec.selector"))),
    ]
}

fn external_ip(service: &Tree) -> String {
    let mut ips = Vec::new();
    match kind_of(service) {
        EXTERNAL_NAME => return service.str("spec.externalName").to_string(),
        CLUSTER_IP | NODE_PORT => {}
        LOAD_BALANCER => ips.extend(load_balancer_addresses(service.list("status.loadBalancer.ingress"))),
        _ => return "<unknown>".to_string(),
    }
    ips.extend(service.list("spec.externalIPs").iter().filter_map(Tree::as_str));
    match (kind_of(service), ips.is_empty()) {
        (LOAD_BALANCER, true) => "<pending>".to_string(),
        (_, true) => "<none>".to_string(),
        _ => ips.join(","),
    }
}

/// Addresses or host names, sorted and unique.
pub(crate) fn load_balancer_addresses(ingress: &[Tree]) -> Vec<&str> {
    let address = |item: &'_ Tree| -> (bool, bool) { (!item.str("ip").is_empty(), !item.str("hostname").is_empty()) };
    let mut found: Vec<&str> = ingress
        .iter()
        .filter_map(|item| match address(item) {
            (true, _) => Some(item.str("ip")),
            (false, true) => Some(item.str("hostname")),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn ports(service: &Tree) -> String {
    let one = |port: &Tree| {
        let (number, protocol) = (port.int("port").unwrap_or(0), port.str("protocol"));
        match port.int("nodePort").unwrap_or(0) {
            0 => format!("{number}/{protocol}"),
            node_port => format!("{number}:{node_port}/{protocol}"),
        }
    };
    let ports: Vec<String> = service.list("spec.ports").iter().map(one).collect();
    if ports.is_empty() { "<none>".to_string() } else { ports.join(",") }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn rows_match_upstream() {
        let service = tree! {
            "metadata" => tree! { "name" => "web" },
            "spec" => tree! {
                "type" => "LoadBalancer",
                "clusterIPs" => list!["10.0.0.1"],
                "ports" => list![tree! { "port" => 80, "protocol" => "TCP", "nodePort" => 30080 }],
            },
        };
        let row = cells(&service, 0);
        assert_eq!(
            row[1..5],
            list!["LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP"].as_list().expect("a list")[..]
        );
        assert_eq!(row[6], Tree::from("<none>"));
    }
}
