//! Traffic from outside of the cluster.

use proxy::model::Family;

use crate::support::{Cluster, Machine, NODE, NODE_IP, NODE_IP6, ready};

/// With this port in both families and the policy of external traffic.
fn spec(kind: &str, more: &str) -> String {
    format!(
        r#"{{"type":"{kind}","clusterIP":"10.96.0.20","clusterIPs":["10.96.0.20","fd00:96::20"],{more}
        "ports":[{{"protocol":"TCP","port":80,"nodePort":30080}}]}}"#
    )
}

fn at_node(port: u16) -> [String; 2] {
    [format!("{NODE_IP}:{port}"), format!("[{NODE_IP6}]:{port}")]
}

fn is_own(machine: &Machine, address: std::net::IpAddr) -> bool {
    address == machine.ip || address == machine.ip6
}

/// Endpoints on this node and on another one.
fn set_endpoints(cluster: &mut Cluster, service: &str, local: &[usize], remote: bool) {
    for family in Family::ALL {
        let mut list: Vec<String> = local.iter().map(|pod| ready(&cluster.pods[*pod], family, NODE)).collect();
        if remote {
            list.push(ready(&cluster.remote, family, "node-2"));
        }
        cluster.slice(service, family, r#"[{"name":"","protocol":"TCP","port":8080}]"#, &list);
    }
}

fn serve_all(cluster: &Cluster) {
    cluster.pods.iter().chain([&cluster.remote]).for_each(|machine| machine.serve(8080));
}

pub fn node_port(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", ""), "");
    set_endpoints(cluster, "web", &[0], true);
    cluster.sync();
    for to in at_node(30080) {
        for client in [&cluster.outside, &cluster.pods[2], &cluster.node] {
            assert_eq!(client.servers(&to, 40), ["pod-0", "remote"], "{} to {to}", client.name);
        }
        // The endpoint may be on another node, so that the reply has to return through this one.
        assert!(!is_own(&cluster.outside, cluster.outside.tcp(&to).expect("a reply").client));
    }
    // The cluster IP works from outside too, if there is a route.
    assert_eq!(cluster.outside.servers("10.96.0.20:80", 40), ["pod-0", "remote"]);
    set_endpoints(cluster, "web", &[], false);
    cluster.sync();
    for to in at_node(30080) {
        assert!(cluster.outside.is_refused(&to) && cluster.pods[2].is_refused(&to) && cluster.node.is_refused(&to));
    }
}

/// Node ports are served at the Node's addresses only.
pub fn node_port_addresses(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", ""), "");
    set_endpoints(cluster, "web", &[0], false);
    cluster.sync();
    assert_eq!(cluster.pods[2].servers(&format!("{NODE_IP}:30080"), 5), ["pod-0"]);
    // An address of the node that is not among them.
    assert!(cluster.pods[2].is_refused("10.244.1.1:30080"));
    assert!(cluster.pods[2].is_refused("[fd00:244:1::1]:30080"));
}

pub fn external_local(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", r#""externalTrafficPolicy":"Local","externalIPs":["203.0.113.9"],"#), "");
    set_endpoints(cluster, "web", &[0, 1], true);
    cluster.sync();
    let [v4, v6] = at_node(30080);
    for to in [v4.as_str(), &v6, "203.0.113.9:80"] {
        // Only endpoints of this node, which see the client's address.
        assert_eq!(cluster.outside.servers(to, 40), ["pod-0", "pod-1"], "{to}");
        let client = cluster.outside.tcp(to).expect("a reply").client;
        assert_eq!(is_own(&cluster.outside, client), cluster.translates(), "{to}");
        // Clients on the node use the endpoints of all nodes.
        assert_eq!(cluster.pods[2].servers(to, 60), ["pod-0", "pod-1", "remote"], "{to}");
        assert_eq!(cluster.node.servers(to, 60), ["pod-0", "pod-1", "remote"], "{to}");
    }
    set_endpoints(cluster, "web", &[], true);
    cluster.sync();
    for to in [v4.as_str(), &v6, "203.0.113.9:80"] {
        assert!(cluster.outside.is_dropped(to), "{to}");
        assert_eq!(cluster.pods[2].servers(to, 10), ["remote"], "{to}");
        assert_eq!(cluster.node.servers(to, 10), ["remote"], "{to}");
    }
    set_endpoints(cluster, "web", &[], false);
    cluster.sync();
    for to in [v4.as_str(), &v6, "203.0.113.9:80"] {
        assert!(cluster.outside.is_refused(to), "{to}");
    }
}

pub fn external_ips(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("ClusterIP", r#""externalIPs":["203.0.113.7","fd03::7"],"#), "");
    set_endpoints(cluster, "web", &[0], true);
    cluster.sync();
    for to in ["203.0.113.7:80", "[fd03::7]:80"] {
        assert_eq!(cluster.outside.servers(to, 40), ["pod-0", "remote"]);
        assert_eq!(cluster.pods[2].servers(to, 40), ["pod-0", "remote"]);
    }
    // Another Service with the same address and port does not take it away.
    let thief = r#"{"type":"ClusterIP","clusterIP":"10.96.0.21","clusterIPs":["10.96.0.21"],
        "externalIPs":["203.0.113.7","10.96.0.20"],"ports":[{"protocol":"TCP","port":80}]}"#;
    cluster.service("thief", thief, "");
    cluster.slice(
        "thief",
        Family::V4,
        r#"[{"name":"","protocol":"TCP","port":8080}]"#,
        &[ready(&cluster.pods[1], Family::V4, NODE)],
    );
    cluster.sync();
    assert_eq!(cluster.outside.servers("203.0.113.7:80", 20), ["pod-0", "remote"]);
    assert_eq!(cluster.pods[2].servers("10.96.0.20:80", 20), ["pod-0", "remote"]);
    assert_eq!(cluster.pods[2].servers("10.96.0.21:80", 5), ["pod-1"]);
    cluster.restart();
    assert_eq!(cluster.outside.servers("203.0.113.7:80", 20), ["pod-0", "remote"]);
    cluster.delete_service("web");
    cluster.sync();
    assert_eq!(cluster.outside.servers("203.0.113.7:80", 5), ["pod-1"]);
}

pub fn load_balancer(cluster: &mut Cluster) {
    serve_all(cluster);
    let ingress = r#"{"ingress":[{"ip":"203.0.113.8"},{"ip":"fd03::8","ipMode":"VIP"},
        {"ip":"203.0.113.99","ipMode":"Proxy"}]}"#;
    let ranges = r#""loadBalancerSourceRanges":["192.0.2.0/24 ","10.244.1.10/31","192.0.2.0/25","fd02::/64"],"#;
    cluster.service("web", &spec("LoadBalancer", ranges), ingress);
    set_endpoints(cluster, "web", &[0], true);
    cluster.sync();
    for to in ["203.0.113.8:80", "[fd03::8]:80"] {
        assert_eq!(cluster.outside.servers(to, 40), ["pod-0", "remote"], "{to}");
        // The node is within the ranges.
        assert_eq!(cluster.node.servers(to, 40), ["pod-0", "remote"], "{to}");
        assert!(cluster.pods[2].is_dropped(to), "{to}");
    }
    assert_eq!(cluster.pods[1].servers("203.0.113.8:80", 40), ["pod-0", "remote"]);
    // Source ranges do not concern node ports.
    assert_eq!(cluster.pods[2].servers(&at_node(30080)[0], 40), ["pod-0", "remote"]);
    // A load balancer in the mode Proxy is not captured: the packet leaves, and nothing replies.
    assert!(cluster.outside.is_dropped("203.0.113.99:80"));
    // A range of everything is no restriction.
    let ranges = r#""loadBalancerSourceRanges":["10.0.0.0/8","0.0.0.0/0","::/0"],"#;
    cluster.service("web", &spec("LoadBalancer", ranges), ingress);
    cluster.sync();
    assert_eq!(cluster.outside.servers("203.0.113.8:80", 40), ["pod-0", "remote"]);
    assert_eq!(cluster.pods[2].servers("203.0.113.8:80", 40), ["pod-0", "remote"]);
    assert!(cluster.outside.is_dropped("203.0.113.99:80"), "no range keeps it out, and still it is not captured");
}

/// `allocateLoadBalancerNodePorts: false`
pub fn load_balancer_without_node_ports(cluster: &mut Cluster) {
    serve_all(cluster);
    let spec = r#"{"type":"LoadBalancer","clusterIP":"10.96.0.20","clusterIPs":["10.96.0.20"],
        "allocateLoadBalancerNodePorts":false,"ports":[{"protocol":"TCP","port":80}]}"#;
    cluster.service("web", spec, r#"{"ingress":[{"ip":"203.0.113.8"}]}"#);
    set_endpoints(cluster, "web", &[0], false);
    cluster.sync();
    assert_eq!(cluster.outside.servers("203.0.113.8:80", 5), ["pod-0"]);
    assert_eq!(cluster.pods[1].servers("10.96.0.20:80", 5), ["pod-0"]);
    assert!(cluster.outside.is_refused(&at_node(30080)[0]));
}

/// Traffic from the node is masqueraded; with the option for it, all traffic to cluster IPs.
pub fn masquerade(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", ""), "");
    set_endpoints(cluster, "web", &[], true);
    cluster.sync();
    let gateway: std::net::IpAddr = "10.244.2.1".parse().expect("an address");
    // A socket of the proxy is always the client of endpoints.
    if !cluster.translates() {
        assert_eq!(cluster.pods[0].tcp("10.96.0.20:80").expect("a reply").client, gateway);
        return;
    }
    for client in [&cluster.outside, &cluster.node] {
        assert_eq!(client.tcp("10.96.0.20:80").expect("a reply").client, gateway, "{}", client.name);
    }
    let reply = cluster.pods[0].tcp("10.96.0.20:80").expect("a reply");
    assert_eq!(reply.client, cluster.pods[0].ip);
}

pub fn masquerade_all(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", ""), "");
    set_endpoints(cluster, "web", &[], true);
    cluster.sync();
    let reply = cluster.pods[0].tcp("10.96.0.20:80").expect("a reply");
    assert_eq!(reply.client, "10.244.2.1".parse::<std::net::IpAddr>().expect("an address"));
}

/// Traffic of pods is recognised by their bridge, or by the names of devices.
pub fn local_interface(cluster: &mut Cluster) {
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", ""), "");
    set_endpoints(cluster, "web", &[], true);
    cluster.sync();
    let gateway: std::net::IpAddr = "10.244.2.1".parse().expect("an address");
    assert_eq!(cluster.pods[0].tcp("10.96.0.20:80").expect("a reply").client, cluster.pods[0].ip);
    assert_eq!(cluster.outside.tcp("10.96.0.20:80").expect("a reply").client, gateway);
    assert_eq!(cluster.node.tcp("10.96.0.20:80").expect("a reply").client, gateway);
}

/// In the mode iptables, node ports are served at 127.0.0.1 too.
pub fn localhost_node_ports(cluster: &mut Cluster) {
    std::fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1").expect("a sysctl");
    serve_all(cluster);
    cluster.service("web", &spec("NodePort", ""), "");
    set_endpoints(cluster, "web", &[0], false);
    cluster.sync();
    assert_eq!(cluster.node.servers("127.0.0.1:30080", 5), ["pod-0"]);
    assert_eq!(cluster.pods[1].servers("10.244.1.1:30080", 5), ["pod-0"]);
}
