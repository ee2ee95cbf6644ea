//! Pods in the network of their node, pods that terminate, and pods that have completed.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use networkpolicy::model::Pod as PodModel;

use crate::support::{Host, NetNamespace, SILENCE, TIMEOUT};

fn expect(from: &NetNamespace, to: SocketAddr, expected: bool, what: &str) {
    let timeout = if expected { TIMEOUT } else { SILENCE };
    assert_eq!(from.connect(to, timeout).is_ok(), expected, "{to}: {what}");
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A pod of the namespace x that has the addresses of its node.
fn of_host_network(name: &str, node: &str, ips: [&str; 2]) -> PodModel {
    let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
    let labels = api::json::decode(br#"{"labels":{"pod":"h"}}"#).expect("JSON");
    let labels = podmodel::Labels::read(labels.map("labels"));
    PodModel {
        namespace: "x".into(),
        name: name.into(),
        uid: name.into(),
        node: node.into(),
        host_network: true,
        labels,
        ips,
        ..PodModel::default()
    }
}

/// Policies neither select pods of the host network nor match them by their labels, on this node or on another one.
#[test]
fn pods_of_the_host_network_are_their_node() {
    Host::run(false, |host| {
        let outside = host.outside();
        let own = of_host_network("own", crate::support::NODE, ["10.244.7.1", "fd00:244:7::1"]);
        let other = of_host_network("other", "node-2", ["192.0.2.2", "fd02::2"]);
        for pod in [own, other] {
            host.cluster.pods.insert(format!("x/{}", pod.name).into(), Arc::new(pod));
        }
        let _own = ["10.244.7.1:7000", "[fd00:244:7::1]:7000"].map(|at| TcpListener::bind(address(at)).expect("bound"));
        let _other = ["192.0.2.2:7000", "[fd02::2]:7000"].map(|at| outside.listen(address(at)));
        let servers = [false, true].map(|v6| host.pod("x/a").at(v6, 80));
        let _servers = servers.map(|at| host.pod("x/a").space.listen(at));
        let nodes = ["10.244.7.1:7000", "[fd00:244:7::1]:7000"].map(address);
        let remotes = ["192.0.2.2:7000", "[fd02::2]:7000"].map(address);
        // Policies, whether the other node reaches the pod, and whether the pod reaches the other node.
        for (policies, from_remote, to_remote) in [
            ("", true, true),
            ("x {podSelector: {}, policyTypes: [Ingress, Egress]}", false, false),
            ("x {podSelector: {matchLabels: {pod: h}}, policyTypes: [Ingress, Egress]}", true, true),
            (
                "x {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: h}}}]}]}",
                false,
                true,
            ),
            (
                "x {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}",
                true,
                false,
            ),
            (
                r#"x {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.2/32}}, {ipBlock: {cidr: "fd02::2/128"}}]}]}"#,
                true,
                true,
            ),
        ] {
            host.apply(policies);
            for at in 0..2 {
                // The pod's own node: its probes work, and it is reached.
                drop(TcpStream::connect_timeout(&servers[at], TIMEOUT).expect(policies));
                expect(&host.pod("x/a").space, nodes[at], true, policies);
                expect(&host.pod("y/a").space, nodes[at], true, policies);
                expect(&outside, nodes[at], true, policies);
                expect(&outside, servers[at], from_remote, policies);
                expect(&host.pod("x/a").space, remotes[at], to_remote, policies);
            }
        }
    });
}

/// Policies stay in force for a pod that terminates, and its labels match; a pod that has completed is no peer.
#[test]
fn terminating_pods_stay_isolated_and_remain_peers() {
    Host::run(false, |host| {
        let at = host.pod("x/a").at(false, 80);
        let _listener = host.pod("x/a").space.listen(at);
        let terminating = PodModel { terminating: true, ..host.pod("x/a").model() };
        host.cluster.pods.insert("x/a".into(), Arc::new(terminating));
        host.apply("x {podSelector: {}, policyTypes: [Ingress]}");
        expect(&host.pod("y/a").space, at, false, "isolated while it terminates");
        let allow = r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}"#;
        let client = host.pod("y/a").model();
        for (model, expected) in [
            (PodModel { terminating: true, ..client.clone() }, true),
            (PodModel { finished: true, ..client.clone() }, false),
            (client, true),
        ] {
            let what = format!("terminating: {}, finished: {}", model.terminating, model.finished);
            host.cluster.pods.insert("y/a".into(), Arc::new(model));
            host.apply(allow);
            expect(&host.pod("y/a").space, at, expected, &what);
            expect(&host.pod("y/b").space, at, true, &what);
            expect(&host.pod("z/a").space, at, false, &what);
        }
    });
}
