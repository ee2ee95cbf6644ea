//! A second, plain implementation of NetworkPolicy, which reads the objects for every question. It shares no code with the
//! crate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::Tree;

use crate::support::{Pod, namespace_labels};

/// A connection.
#[derive(Clone, Copy)]
pub struct Connection<'a> {
    pub from: &'a Pod,
    pub to: &'a Pod,
    pub v6: bool,
    pub protocol: &'static str,
    pub port: u16,
}

/// Whether policies allow a connection.
pub fn is_allowed(policies: &[Tree], connection: Connection<'_>) -> bool {
    let Connection { from, to, .. } = connection;
    from.key() == to.key()
        || side_allows(policies, connection, to, from, "Ingress")
            && side_allows(policies, connection, from, to, "Egress")
}

fn side_allows(policies: &[Tree], connection: Connection<'_>, own: &Pod, other: &Pod, kind: &str) -> bool {
    let mut isolated = false;
    for policy in policies {
        if policy.str("metadata.namespace") != own.namespace
            || !selects(policy.at("spec.podSelector"), &own.labels)
            || !has_type(policy, kind)
        {
            continue;
        }
        isolated = true;
        let (rules, peers) = if kind == "Ingress" { ("ingress", "from") } else { ("egress", "to") };
        for rule in policy.at("spec").list(rules) {
            let peers = rule.list(peers);
            let ports = rule.list("ports");
            let ip = other.ips[usize::from(connection.v6)];
            let is_peer = peers.is_empty() || peers.iter().any(|peer| matches(peer, own, other, ip));
            if is_peer && (ports.is_empty() || ports.iter().any(|port| has_port(port, connection))) {
                return true;
            }
        }
    }
    !isolated
}

fn has_type(policy: &Tree, kind: &str) -> bool {
    let types = policy.at("spec").list("policyTypes");
    if types.is_empty() {
        return kind == "Ingress" || !policy.at("spec").list("egress").is_empty();
    }
    types.iter().any(|name| name.as_str() == Some(kind))
}

fn selects(selector: &Tree, labels: &BTreeMap<&'static str, &'static str>) -> bool {
    let equal = selector.map("matchLabels").iter().all(|(key, value)| labels.get(key).copied() == value.as_str());
    equal
        && selector.list("matchExpressions").iter().all(|expression| {
            let value = labels.get(expression.str("key")).copied();
            let listed = || expression.list("values").iter().any(|other| other.as_str() == value);
            match expression.str("operator") {
                "In" => value.is_some() && listed(),
                "NotIn" => value.is_none() || !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn matches(peer: &Tree, own: &Pod, other: &Pod, ip: IpAddr) -> bool {
    if peer.has("ipBlock") {
        let block = peer.at("ipBlock");
        let is_in = |cidr: &Tree| contains(cidr.as_str().unwrap_or(""), ip);
        return is_in(block.at("cidr")) && !block.list("except").iter().any(is_in);
    }
    let is_namespace = match peer.get("namespaceSelector") {
        Some(selector) => selects(selector, &namespace_labels(other.namespace)),
        None => own.namespace == other.namespace,
    };
    is_namespace && peer.get("podSelector").is_none_or(|selector| selects(selector, &other.labels))
}

fn contains(cidr: &str, ip: IpAddr) -> bool {
    let Some((network, prefix)) = cidr.split_once('/') else { return false };
    let (Ok(network), Ok(prefix)) = (network.parse::<IpAddr>(), prefix.parse::<usize>()) else { return false };
    let bits = |ip: IpAddr| -> String {
        match ip {
            IpAddr::V4(ip) => ip.octets().iter().map(|byte| format!("{byte:08b}")).collect(),
            IpAddr::V6(ip) => ip.octets().iter().map(|byte| format!("{byte:08b}")).collect(),
        }
    };
    ip.is_ipv4() == network.is_ipv4() && bits(ip)[..prefix] == bits(network)[..prefix]
}

fn has_port(port: &Tree, connection: Connection<'_>) -> bool {
    let protocol = if port.has("protocol") { port.str("protocol") } else { "TCP" };
    if protocol != connection.protocol {
        return false;
    }
    match (port.at("port"), port.int("endPort")) {
        (Tree::Null, _) => true,
        (Tree::Int(first), last) => (*first..=last.unwrap_or(*first)).contains(&i64::from(connection.port)),
        (Tree::Str(name), _) => connection.to.ports.contains(&(name.as_str(), connection.protocol, connection.port)),
        _ => false,
    }
}
