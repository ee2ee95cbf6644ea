//! Plans as text, and the order of endpoints.

use std::net::SocketAddr;

use super::*;
use crate::config::{LocalMode, NodePortAddress};
use crate::model::{Endpoint, Family, Service, Slice};

fn tree(text: &str) -> api::Tree {
    api::yaml::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn node() -> NodeInfo {
    NodeInfo::read(&tree(
        "{metadata: {name: node-1, labels: {topology.kubernetes.io/zone: a}}, spec: {podCIDRs: [10.244.1.0/24]},
          status: {addresses: [{type: Hostname, address: x}, {type: ExternalIP, address: 198.51.100.1},
          {type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: 'fd02::1'}]}}",
    ))
}

/// Endpoints from lines such as `10.0.0.1 node-1 ready zone=a`.
fn endpoints(lines: &str) -> Vec<Endpoint> {
    let one = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let has = |word: &str| words.contains(&word);
        let hints = |prefix: &str| {
            let values = words.iter().filter_map(|word| word.strip_prefix(prefix));
            values.map(api::Str::new).collect::<Vec<_>>().into_boxed_slice()
        };
        Endpoint {
            address: words[0].parse().expect("an address"),
            local: words[1] == "node-1",
            ready: has("ready"),
            serving: has("ready") || has("serving"),
            terminating: has("terminating"),
            zones: hints("zone="),
            nodes: hints("node="),
        }
    };
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(one).collect()
}

fn plan(spec: &str, lines: &str) -> String {
    let service = Service::read(&tree(&format!("{{metadata: {{name: web, namespace: default}}, {spec}}}")));
    let Some(service) = service else { return "nothing\n".to_string() };
    let endpoints = endpoints(lines);
    let of = |family: Family| -> Vec<PortEndpoint<'_>> {
        let own = endpoints.iter().filter(|endpoint| Family::of(endpoint.address) == family);
        own.map(|endpoint| PortEndpoint { endpoint, port: 8080 }).collect()
    };
    service.ports.iter().map(|port| plan_port(port, &of(port.name.family), &node(), None).to_string()).collect()
}

const CLUSTER_IP: &str = "spec: {type: ClusterIP, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{port: 80}]}";

#[test]
#[allow(clippy::too_many_lines)] // A table.
fn plans() {
    let node_port = |more: &str| {
        format!(
            "spec: {{type: NodePort, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ports: [{{port: 80, nodePort: 30080}}], {more}}}"
        )
    };
    let local = node_port("externalTrafficPolicy: Local");
    let balancer = "spec: {type: LoadBalancer, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00:96::1'],
        ports: [{port: 80, protocol: UDP}], externalIPs: [203.0.113.1, 'fd03::1'],
        loadBalancerSourceRanges: [192.0.2.0/24, '192.0.2.128/25 ', 10.0.0.0/8, 'fd02::/16'], sessionAffinity: ClientIP,
        sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}},
        status: {loadBalancer: {ingress: [{ip: 203.0.113.2}, {ip: 203.0.113.3, ipMode: Proxy}, {hostname: x}]}}";
    let internal = "spec: {type: ClusterIP, clusterIP: 10.96.0.1, internalTrafficPolicy: Local, ports: [{port: 80}]}";
    let cases: &[(&str, &str, &str)] = &[
        ("spec: {type: ClusterIP, clusterIP: None, ports: [{port: 80}]}", "10.0.0.1 node-1 ready", "nothing\n"),
        ("spec: {type: ExternalName, externalName: x}", "", "nothing\n"),
        (CLUSTER_IP, "", "cluster IP 10.96.0.1:80 tcp -> reject\n"),
        (
            CLUSTER_IP,
            "10.0.0.1 node-1 ready
             10.0.0.2 node-2 ready
             10.0.0.3 node-2 serving terminating
             10.0.0.4 node-2",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\n\
             cluster endpoints 10.0.0.1:8080 10.0.0.2:8080\n\
             hairpin 10.0.0.1\n",
        ),
        // Without ready endpoints, those that terminate and serve.
        (
            CLUSTER_IP,
            "10.0.0.3 node-2 serving terminating
             10.0.0.4 node-2",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\ncluster endpoints 10.0.0.3:8080\n",
        ),
        // Hints.
        (
            CLUSTER_IP,
            "10.0.0.1 node-2 ready zone=b
             10.0.0.2 node-2 ready zone=a",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\ncluster endpoints 10.0.0.2:8080\n",
        ),
        (
            CLUSTER_IP,
            "10.0.0.1 node-2 ready zone=a node=node-1
             10.0.0.2 node-2 ready zone=a node=node-2",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\ncluster endpoints 10.0.0.1:8080\n",
        ),
        // Traffic inside the cluster that stays on the node.
        (
            internal,
            "10.0.0.1 node-1 ready
             10.0.0.2 node-2 ready",
            "cluster IP 10.96.0.1:80 tcp -> local endpoints\nlocal endpoints 10.0.0.1:8080\nhairpin 10.0.0.1\n",
        ),
        (internal, "10.0.0.2 node-2 ready", "cluster IP 10.96.0.1:80 tcp -> drop\n"),
        (internal, "", "cluster IP 10.96.0.1:80 tcp -> reject\n"),
        // Traffic from outside.
        (
            &node_port(""),
            "10.0.0.2 node-2 ready",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\n\
             node port 30080 tcp -> cluster endpoints, masquerade\n\
             cluster endpoints 10.0.0.2:8080\n",
        ),
        (
            &local,
            "10.0.0.1 node-1 serving terminating
             10.0.0.2 node-2 ready",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\n\
             node port 30080 tcp -> local endpoints, keeps source\n\
             cluster endpoints 10.0.0.2:8080\n\
             local endpoints 10.0.0.1:8080\n\
             hairpin 10.0.0.1\n",
        ),
        (
            &local,
            "10.0.0.2 node-2 ready",
            "cluster IP 10.96.0.1:80 tcp -> cluster endpoints\n\
             node port 30080 tcp -> drop, keeps source\n\
             cluster endpoints 10.0.0.2:8080\n",
        ),
        (
            balancer,
            "10.0.0.1 node-2 ready
             fd00::1 node-2 ready",
            "cluster IP 10.96.0.1:80 udp -> cluster endpoints\n\
             external IP 203.0.113.1:80 udp -> cluster endpoints, masquerade\n\
             external IP 203.0.113.2:80 udp -> cluster endpoints, masquerade\n\
             only from 10.0.0.0/8 192.0.2.0/24 203.0.113.2/32 to 203.0.113.2:80\n\
             affinity 60 s\n\
             cluster endpoints 10.0.0.1:8080\n\
             cluster IP [fd00:96::1]:80 udp -> cluster endpoints\n\
             external IP [fd03::1]:80 udp -> cluster endpoints, masquerade\n\
             affinity 60 s\n\
             cluster endpoints [fd00::1]:8080\n",
        ),
    ];
    for (spec, lines, expected) in cases {
        assert_eq!(plan(spec, lines), *expected, "{spec}\n{lines}");
    }
}

#[test]
fn endpoints_keep_their_positions() {
    let parse = |text: &str| -> Vec<SocketAddr> {
        text.chars().map(|letter| SocketAddr::from(([10, 0, 0, letter as u8], 80))).collect()
    };
    for (previous, desired, expected) in [
        ("", "abc", "abc"),
        ("abc", "abcd", "abcd"),
        ("abc", "ac", "ac"),
        ("abcd", "bcd", "dbc"),
        ("abcd", "d", "d"),
        ("abc", "xbc", "xbc"),
        ("abc", "bcxyz", "xbcyz"),
        ("abc", "", ""),
        ("abc", "aabb", "ab"),
    ] {
        assert_eq!(keep_positions(&parse(previous), parse(desired)), parse(expected), "{previous} {desired}");
    }
}

#[test]
fn invalid_endpoints_are_ignored() {
    let slice = |kind: &str, address: &str| {
        let text = format!(
            "{{metadata: {{namespace: default, labels: {{kubernetes.io/service-name: web}}}}, addressType: {kind},
              endpoints: [{{addresses: ['{address}']}}], ports: [{{port: 80}}, {{port: 0}}, {{name: x}}]}}"
        );
        Slice::read(&tree(&text), "node-1")
    };
    for (kind, address, count) in [
        ("IPv4", "10.0.0.1", 1),
        ("IPv4", "127.0.0.1", 0),
        ("IPv4", "169.254.169.254", 0),
        ("IPv4", "224.0.0.1", 0),
        ("IPv4", "0.0.0.0", 0),
        ("IPv4", "fd00::1", 0),
        ("IPv4", "nonsense", 0),
        ("IPv6", "fd00::1", 1),
        ("IPv6", "::1", 0),
        ("IPv6", "fe80::1", 0),
        ("IPv6", "ff02::1", 0),
    ] {
        let slice = slice(kind, address).expect("a slice");
        assert_eq!((slice.endpoints.len(), slice.ports.len()), (count, 1), "{address}");
    }
    assert!(slice("FQDN", "example.com").is_none());
    assert!(Slice::read(&tree("{metadata: {namespace: default}, addressType: IPv4}"), "node-1").is_none());
}

#[test]
fn node_rules_follow_the_configuration() {
    let net = |text: &str| text.parse().expect("a range");
    let machine: Vec<IpAddr> =
        ["127.0.0.1", "192.0.2.1", "10.9.0.1", "::1", "fd02::1"].map(|text| text.parse().expect("ip")).into();
    let only =
        |addresses: &[&str]| NodePortAddresses::Only(addresses.iter().map(|text| text.parse().expect("ip")).collect());
    for (configured, family, expected) in [
        (vec![], Family::V4, NodePortAddresses::All),
        (vec![NodePortAddress::All], Family::V6, NodePortAddresses::All),
        (vec![NodePortAddress::Primary], Family::V4, only(&["192.0.2.1"])),
        (vec![NodePortAddress::Primary], Family::V6, only(&["fd02::1"])),
        (vec![NodePortAddress::Cidr(net("10.0.0.0/8"))], Family::V4, only(&["10.9.0.1"])),
        // A range of one family does not affect the other.
        (vec![NodePortAddress::Cidr(net("10.0.0.0/8"))], Family::V6, NodePortAddresses::All),
        (vec![NodePortAddress::Cidr(net("0.0.0.0/0"))], Family::V4, NodePortAddresses::All),
        (vec![NodePortAddress::Primary, NodePortAddress::Localhost], Family::V4, only(&["127.0.0.1", "192.0.2.1"])),
    ] {
        assert_eq!(node_port_addresses(&configured, family, &node(), &machine), expected, "{configured:?}");
    }
    let cluster = LocalMode::ClusterCidr(vec![net("10.244.0.0/16")]);
    assert_eq!(local_traffic(&cluster, Family::V4, &node()), LocalTraffic::Sources(vec![net("10.244.0.0/16")]));
    assert_eq!(local_traffic(&cluster, Family::V6, &node()), LocalTraffic::Unknown);
    let own = local_traffic(&LocalMode::NodeCidr, Family::V4, &node());
    assert_eq!(own, LocalTraffic::Sources(vec![net("10.244.1.0/24")]));
}
