//! Several nodes on one machine: pods, Services, names and network policies between them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use super::case::{Case, condition};
use super::cluster::Cluster;
use super::{Table, check, services};

const NODES: [&str; 3] = ["node", "node-2", "node-3"];
const CASES: Table = &[
    ("pods of different nodes reach each other", reach),
    ("policies hold between nodes", policies),
    ("node ports and the addresses of their clients", node_ports),
    ("streams from every node", streams),
    ("a drained node is emptied", drain),
    ("a daemon runs on every node", daemons),
    ("members of a stateful set keep their volumes", local_volumes),
];

/// With plain routes, all packets have the size of the link.
const PLAIN_ROUTES: Table = &[
    ("pods of different nodes reach each other", reach_directly),
    ("streams from every node", streams),
    ("policies hold between nodes", policies),
    ("node ports and the addresses of their clients", node_ports),
];

fn up(flags: &[&str]) -> Cluster {
    let cluster = Cluster::up_with_nodes_and(3, flags);
    let all = Case::of_cluster(&cluster);
    for node in NODES {
        let path = format!("/api/v1/nodes/{node}");
        all.until("a ready node", || all.read(&path), |node| condition(node, "Ready") == "True");
    }
    cluster
}

#[test]
fn several_nodes_on_one_machine() {
    let cluster = up(&[]);
    check(&cluster, &[services::CASES, services::POLICY_CASES, CASES]);
}

#[test]
fn several_nodes_with_plain_routes() {
    let cluster = up(&["--network-backend", "host-gw"]);
    let links = cluster.command("ip").args(["-o", "link"]).output().expect("ip is there");
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    assert!(!links.contains("tiphys0-vx"), "no device of an overlay: {links}");
    check(&cluster, &[PLAIN_ROUTES]);
}

const TWO_FAMILIES: Table = &[
    ("pods of two families reach each other", reach_in_both_families),
    ("streams from every node", streams),
    ("members of a stateful set keep their volumes", local_volumes),
];

#[test]
fn several_nodes_with_two_families() {
    let cluster = up(&[
        "--cluster-cidr",
        "10.42.0.0/20,fd00:42::/56",
        "--service-cidr",
        "10.96.0.0/16,fd00:96::/112",
        "--controller-manager-arg",
        "node-cidr-mask-size-ipv4=26",
        "--controller-manager-arg",
        "node-cidr-mask-size-ipv6=72",
    ]);
    check(&cluster, &[TWO_FAMILIES]);
}

/// `TIPHYS_TEST_NODES` of CONTRIBUTING: twenty fit on a machine with two cores and 24 GiB.
#[test]
fn many_nodes_fit_on_one_machine() {
    let count = std::env::var("TIPHYS_TEST_NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let started = std::time::Instant::now();
    let cluster = Cluster::up_with_nodes(count);
    println!("{count} nodes are ready after {} ms", started.elapsed().as_millis());
    let case = Case::new(&cluster, "many");
    case.apply(
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: agent}}, \
         template: {metadata: {labels: {app: agent}}, spec: {terminationGracePeriodSeconds: 1, containers: \
         [{name: main, image: IMAGE}]}}}}",
    );
    let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/agent", case.namespace);
    case.until(
        "a pod on each node",
        || case.read(&path).int("status.numberReady"),
        |ready| *ready == Some(i64::from(count)),
    );
}

fn make_pods(case: &Case) {
    for node in NODES {
        case.pod(
            node,
            &format!(
                "nodeName: {node}, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: IMAGE, command: \
                 [sh, -c, 'echo on {node}; mkdir -p /tmp/cgi-bin; head -c 3000000 /dev/zero > /tmp/large; printf \"#!/bin/sh\\n\
                 echo; echo {node} \\$REMOTE_ADDR\" > /tmp/cgi-bin/peer; chmod +x /tmp/cgi-bin/peer; exec httpd -f -p 8080 \
                 -h /tmp']}}]"
            ),
        );
    }
    NODES.iter().for_each(|node| drop(case.until_ready(node)));
}

/// The header of VXLAN takes 50 bytes of each packet.
fn reach(case: &Case) {
    reach_with_mtu(case, 1450);
}

fn reach_directly(case: &Case) {
    reach_with_mtu(case, 1500);
}

/// Every pod reaches every other one with its own address, and packets have the size of the path MTU.
fn reach_with_mtu(case: &Case, expected: u32) {
    make_pods(case);
    for node in NODES {
        services::client_with(case, &format!("from-{node}"), &format!("nodeName: {node},"), &[]);
    }
    let address = |pod: &str| case.pods(pod).str("status.podIP").to_string();
    for from in NODES {
        let client = format!("from-{from}");
        for to in NODES {
            let get = |path: &str| format!("/usr/bin/curl -sS --max-time 10 http://{}:8080/{path}", address(to));
            let seen = case.exec(&client, &get("cgi-bin/peer"));
            let source = address(&client);
            assert!(seen.starts_with(&format!("{to} ")) && seen.contains(&source), "from {from} ({source}): {seen}");
            assert_eq!(case.exec(&client, &format!("{} | wc -c", get("large"))), "3000000", "from {from} to {to}");
        }
        // Each node serves names itself.
        let found = case.exec(&client, "/usr/bin/getent hosts kubernetes.default.svc.cluster.local");
        assert!(found.starts_with("10.96.0.1 "), "{from}: {found}");
        let mtu = case.exec(&client, "ip link show eth0");
        assert!(mtu.contains(&format!("mtu {expected} ")), "{from}: {mtu}");
    }
}

/// Each node has a range of each family, of the chosen size, and its pods are reached at both of their addresses.
fn reach_in_both_families(case: &Case) {
    make_pods(case);
    for node in NODES {
        services::client_with(case, &format!("from-{node}"), &format!("nodeName: {node},"), &[]);
        let object = case.read(&format!("/api/v1/nodes/{node}"));
        let ranges: Vec<&str> = object.list("spec.podCIDRs").iter().filter_map(api::Tree::as_str).collect();
        let sizes: Vec<&str> = ranges.iter().filter_map(|range| Some(range.split_once('/')?.1)).collect();
        assert_eq!(sizes, ["26", "72"], "{node}: {ranges:?}");
    }
    let addresses = |pod: &str| -> Vec<String> {
        case.pods(pod).list("status.podIPs").iter().map(|one| one.str("ip").to_string()).collect()
    };
    for (from, to) in NODES.iter().flat_map(|from| NODES.map(|to| (from, to))) {
        let client = format!("from-{from}");
        let pairs: Vec<(String, String)> = addresses(&client).into_iter().zip(addresses(to)).collect();
        assert_eq!(pairs.len(), 2, "{client} and {to} have two addresses");
        for (source, target) in pairs {
            let host = if target.contains(':') { format!("[{target}]") } else { target };
            let get = |path: &str| format!("/usr/bin/curl -gsS --max-time 10 http://{host}:8080/{path}");
            let seen = || case.exec(&client, &format!("{} || true", get("cgi-bin/peer")));
            let is_right = |seen: &String| seen.starts_with(&format!("{to} ")) && seen.contains(&source);
            case.until(&format!("{host} from {from} ({source})"), seen, is_right);
            assert_eq!(case.exec(&client, &format!("{} | wc -c", get("large"))), "3000000", "from {from} to {host}");
        }
    }
}

/// A policy of a pod on one node, by the labels, the namespace and the address of clients on the others.
fn policies(case: &Case) {
    make_pods(case);
    let other = Case::new(case.cluster, &format!("{}-other", case.namespace));
    services::client_with(case, "friend", "nodeName: node-3,", &[]);
    services::client_with(case, "foe", "nodeName: node-3,", &[]);
    services::client_with(case, "near", "nodeName: node-2,", &[]);
    services::client_with(&other, "foreign", "nodeName: node,", &[]);
    let server = case.pods("node-2").str("status.podIP").to_string();
    let reaches = |case: &Case, client: &str| {
        let get = format!("/usr/bin/curl -sS --max-time 2 http://{server}:8080/cgi-bin/peer || echo FAILED");
        !case.exec(client, &get).contains("FAILED")
    };
    let friend = case.pods("friend").str("status.podIP").to_string();
    let foreign =
        format!("{{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}}}", other.namespace);
    let peers = [
        ("{podSelector: {matchLabels: {app: friend}}}".to_string(), [true, false, false, false]),
        (foreign, [false, false, false, true]),
        (format!("{{ipBlock: {{cidr: {friend}/32}}}}"), [true, false, false, false]),
        (format!("{{ipBlock: {{cidr: 10.42.0.0/16, except: [{friend}/32]}}}}"), [false, true, true, true]),
    ];
    for (peer, wanted) in peers {
        let policy = format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: clients}}\nspec:\n  podSelector: \
             {{matchLabels: {{app: node-2}}}}\n  ingress:\n  - from: [{peer}]\n"
        );
        let file = case.file("policy", &policy);
        case.kubectl(&["apply", "-f", &file]);
        let seen =
            || [reaches(case, "friend"), reaches(case, "foe"), reaches(case, "near"), reaches(&other, "foreign")];
        case.until(&format!("friend, foe, near, foreign with {peer}"), seen, |seen| *seen == wanted);
    }
    case.kubectl(&["delete", "networkpolicy", "clients"]);
    // Egress is judged on the node of the client.
    let policy = format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: servers}}\nspec:\n  podSelector: \
         {{matchLabels: {{app: foe}}}}\n  policyTypes: [Egress]\n  egress:\n  - to: [{{ipBlock: {{cidr: {}/32}}}}]\n",
        case.pods("node").str("status.podIP")
    );
    let file = case.file("policy", &policy);
    case.kubectl(&["apply", "-f", &file]);
    let seen = || [reaches(case, "friend"), reaches(case, "foe")];
    case.until("friend and foe without egress to it", seen, |seen| *seen == [true, false]);
}

/// The last line of a page, and the address of this thread's connection; None without a response.
fn page(address: &str, path: &str) -> Option<(IpAddr, String)> {
    let address: SocketAddr = address.parse().expect("an address");
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(format!("GET /{path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut received = String::new();
    stream.read_to_string(&mut received).ok()?;
    Some((stream.local_addr().ok()?.ip(), received.trim().lines().last()?.to_string()))
}

/// A client outside of the cluster, at a node port of a node without the pod: the node replaces the address of the client
/// by its own. With the policy Local it does not, and only the node of the pod responds.
fn node_ports(case: &Case) {
    make_pods(case);
    case.kubectl(&["expose", "pod", "node-2", "--name=web", "--type=NodePort", "--port=80", "--target-port=8080"]);
    let port = services::service(case, "web").list("spec.ports")[0].int("nodePort").expect("a node port");
    let at = |node: &str| {
        let node = case.read(&format!("/api/v1/nodes/{node}"));
        let internal = node.list("status.addresses").iter().find(|one| one.str("type") == "InternalIP");
        format!("{}:{port}", internal.map_or("", |one| one.str("address")))
    };
    let source = |node: &str| {
        let (client, body) = page(&at(node), "cgi-bin/peer")?;
        let (pod, source) = body.split_once(' ')?;
        let source: IpAddr = source.trim_matches(['[', ']']).parse().ok()?;
        (pod == "node-2").then_some((client, source.to_canonical()))
    };
    for node in ["node-2", "node-3"] {
        let seen = case.until(&format!("the port of {node}"), || source(node), Option::is_some);
        let (client, source) = seen.expect("a response");
        assert_ne!(source, client, "at {node}: by the policy Cluster, nodes replace the address of a client");
    }
    case.kubectl(&["patch", "service", "web", "--patch", r#"{"spec":{"externalTrafficPolicy":"Local"}}"#]);
    case.until("no response of a node without the pod", || source("node-3"), Option::is_none);
    let is_kept = |seen: &Option<(IpAddr, IpAddr)>| seen.is_some_and(|(client, source)| client == source);
    case.until("the address of the client", || source("node-2"), is_kept);
}

fn streams(case: &Case) {
    make_pods(case);
    for node in NODES {
        assert_eq!(case.kubectl(&["logs", node]), format!("on {node}"));
        assert_eq!(case.exec(node, "hostname"), node);
        let stats = case.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/stats/summary")]);
        assert!(stats.contains(&format!("\"nodeName\":\"{node}\"")), "{stats}");
    }
}

/// Pods of a Deployment leave a node that is drained, and come back to it.
fn drain(case: &Case) {
    case.apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: spread}, spec: {replicas: 3, selector: {matchLabels: \
         {app: spread}}, template: {metadata: {labels: {app: spread}}, spec: {terminationGracePeriodSeconds: 1, \
         nodeSelector: {drained: 'yes'}, containers: [{name: main, image: IMAGE}], topologySpreadConstraints: [{maxSkew: 1, \
         topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: \
         {matchLabels: {app: spread}}}]}}}}",
    );
    // Only pods of this case are evicted.
    case.kubectl(&["label", "nodes", "node-2", "node-3", "drained=yes"]);
    let ready = || case.kubectl(&["get", "deployment", "spread", "--output=jsonpath={.status.readyReplicas}"]);
    case.until("three pods", ready, |ready| ready == "3");
    case.kubectl(&["drain", "node-3", "--pod-selector=app=spread", "--timeout=60s"]);
    let nodes = || case.kubectl(&["get", "pods", "-l", "app=spread", "--output=jsonpath={.items[*].spec.nodeName}"]);
    case.until("an empty node", nodes, |nodes| !nodes.contains("node-3"));
    case.until("three pods", ready, |ready| ready == "3");
    case.kubectl(&["uncordon", "node-3"]);
}

/// A DaemonSet has a pod on every node, also on one that is drained, and replaces a deleted one on its node.
fn daemons(case: &Case) {
    case.apply(
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: agent}}, \
         template: {metadata: {labels: {app: agent}}, spec: {terminationGracePeriodSeconds: 1, containers: \
         [{name: main, image: IMAGE, command: [sh, -c, 'echo $NODE; exec sleep 100000'], env: [{name: NODE, valueFrom: \
         {fieldRef: {fieldPath: spec.nodeName}}}]}]}}}}",
    );
    let ready = || case.kubectl(&["get", "daemonset", "agent", "--output=jsonpath={.status.numberReady}"]);
    case.until("a pod on each node", ready, |ready| ready == "3");
    let on = |node: &str| {
        let selector = format!("--field-selector=spec.nodeName={node}");
        case.kubectl(&["get", "pods", "-l", "app=agent", &selector, "--output=jsonpath={.items[*].metadata.name}"])
    };
    for node in NODES {
        assert_eq!(case.kubectl(&["logs", &on(node)]), node);
    }
    let before = on("node-2");
    case.kubectl(&["delete", "pod", &before]);
    case.until("its successor", || on("node-2"), |pod| !pod.is_empty() && *pod != before);
    case.until("a pod on each node", ready, |ready| ready == "3");
}

/// Each member of a StatefulSet has a volume on its node; its successor is there too, and finds its data.
fn local_volumes(case: &Case) {
    case.apply(
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, replicas: 3, \
         podManagementPolicy: Parallel, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: \
         {terminationGracePeriodSeconds: 1, topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, \
         whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}], containers: [{name: main, image: IMAGE, \
         command: [sh, -c, 'echo start >> /data/starts; exec sleep 100000'], volumeMounts: [{name: data, mountPath: /data}]}]}}, \
         volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: \
         {storage: 1Mi}}}}]}}",
    );
    let members = ["db-0", "db-1", "db-2"];
    let node_of = |pod: &str| case.until_ready(pod).str("spec.nodeName").to_string();
    let before = members.map(node_of);
    let mut nodes = before.to_vec();
    nodes.sort();
    assert_eq!(nodes, NODES, "one on each node");
    let uids = members.map(|pod| case.pods(pod).str("metadata.uid").to_string());
    case.kubectl(&["delete", "pods", "db-0", "db-1", "db-2"]);
    for (pod, uid) in members.iter().zip(&uids) {
        case.until_pod(pod, "its successor", |pod| !pod.is_null() && pod.str("metadata.uid") != uid);
    }
    assert_eq!(members.map(node_of), before, "their volumes are there");
    for pod in members {
        assert_eq!(case.exec(pod, "cat /data/starts"), "start\nstart", "{pod}");
    }
}
