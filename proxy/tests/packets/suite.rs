//! Traffic inside the cluster.

use crate::support::{Cluster, ask};

const WEB: &str = r#"{"type":"ClusterIP","clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10","fd00:96::10"],
    "ports":[{"protocol":"TCP","port":80,"targetPort":8080}]}"#;
const DNS: &str = r#"{"type":"ClusterIP","clusterIP":"10.96.0.11","clusterIPs":["10.96.0.11","fd00:96::11"],
    "ports":[{"protocol":"UDP","port":53}]}"#;

pub fn cluster_ip(cluster: &mut Cluster) {
    cluster.pods.iter().for_each(|pod| pod.serve(8080));
    cluster.service("web", WEB, "");
    cluster.endpoints("web", "TCP", 8080, &[0, 1]);
    cluster.sync();
    for to in ["10.96.0.10:80", "[fd00:96::10]:80"] {
        assert_eq!(cluster.pods[2].servers(to, 40), ["pod-0", "pod-1"]);
        assert_eq!(cluster.node.servers(to, 40), ["pod-0", "pod-1"]);
        // A pod keeps its address.
        let reply = cluster.pods[2].tcp(to).expect("a reply");
        assert!(reply.client == cluster.pods[2].ip || reply.client == cluster.pods[2].ip6, "{reply:?}");
        // A pod reaches itself through its Service, from another address.
        assert_eq!(cluster.pods[0].servers(to, 40), ["pod-0", "pod-1"]);
        // Ports that the Service does not have are refused.
        let other = to.replace(":80", ":81");
        assert!(cluster.pods[2].is_refused(&other), "{other}");
    }
    // An endpoint is added, and another one removed.
    cluster.endpoints("web", "TCP", 8080, &[1, 2]);
    assert_eq!(cluster.sync().ports, 2);
    assert_eq!(cluster.pods[0].servers("10.96.0.10:80", 40), ["pod-1", "pod-2"]);
    cluster.endpoints("web", "TCP", 8080, &[]);
    cluster.sync();
    assert!(cluster.pods[0].is_refused("10.96.0.10:80"));
    assert!(cluster.pods[0].is_refused("[fd00:96::10]:80"));
    assert!(cluster.node.is_refused("10.96.0.10:80"));
    cluster.delete_service("web");
    assert_eq!(cluster.sync().ports, 2);
}

pub fn udp(cluster: &mut Cluster) {
    cluster.pods.iter().for_each(|pod| pod.serve(5353));
    cluster.service("dns", DNS, "");
    cluster.endpoints("dns", "UDP", 5353, &[0]);
    cluster.sync();
    for to in ["10.96.0.11:53", "[fd00:96::11]:53"] {
        // A flow follows its endpoint: when the endpoint is removed, the next packet of the same socket goes to another.
        let socket = cluster.pods[2].udp_socket(to);
        assert_eq!(ask(&socket).expect("a reply").server, "pod-0");
        cluster.endpoints("dns", "UDP", 5353, &[1]);
        assert!(cluster.sync().connections >= 1);
        assert_eq!(ask(&socket).expect("a reply").server, "pod-1");
        cluster.endpoints("dns", "UDP", 5353, &[0]);
        cluster.sync();
    }
    cluster.endpoints("dns", "UDP", 5353, &[]);
    cluster.sync();
    let error = cluster.pods[2].udp("10.96.0.11:53").expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}
