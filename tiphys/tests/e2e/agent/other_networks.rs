//! Another pod network on the nodes of a machine: `--disable network`, its configuration is dropped into `/etc/cni/net.d`, and
//! its routes are those of its own daemon.

use super::case::{Case, condition};
use super::cluster::{Cluster, ENTER, Runtime, make_images};
use super::services::{answering, client_with};

/// `/etc` is that of the cluster: nothing is written to the machine's.
const OWN_ETC: &str = "mkdir -p etc/upper etc/work && \
    mount -t overlay -o lowerdir=/etc,upperdir=$PWD/etc/upper,workdir=$PWD/etc/work overlay /etc && mkdir -p /etc/cni/net.d";

/// Runs a script on a node: on the machine, or among the mounts and in the network of a simulated host.
fn on_node(cluster: &Cluster, node: &str, script: &str) -> String {
    let enter = match node {
        "node" => format!("sh -ec '{script}'"),
        node => format!(
            "nsenter -t $(pgrep -f data/nodes/{node}/agen[t] | sort -n | tail -1) --mount --net sh -ec '{script}'"
        ),
    };
    let output = cluster.command("sh").args(["-c", &enter]).output().expect("a shell");
    assert!(output.status.success(), "{node}: {script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What flannel's daemon does with its backend host-gw: the configuration of the node's range, and routes to the others.
fn install(cluster: &Cluster, node: &str, cidr: &str, others: &[(String, String)]) {
    let list = format!(
        "{{\"cniVersion\": \"0.4.0\", \"name\": \"other\", \"plugins\": [{{\"type\": \"bridge\", \"bridge\": \"other0\", \
         \"isGateway\": true, \"mtu\": 1400, \"ipam\": {{\"type\": \"host-local\", \"subnet\": \"{cidr}\", \"routes\": \
         [{{\"dst\": \"0.0.0.0/0\"}}]}}}}, {{\"type\": \"portmap\", \"capabilities\": {{\"portMappings\": true}}}}]}}"
    );
    let routes: String = others.iter().map(|(cidr, via)| format!("ip route add {cidr} via {via}\n")).collect();
    let mount = if node == "node" { "" } else { "mount -t tmpfs none /etc/cni/net.d\n" };
    on_node(
        cluster,
        node,
        &format!(
            "{mount}cat > /etc/cni/net.d/10-other.conflist <<END\n{list}\nEND\nsysctl -qw net.ipv4.ip_forward=1\n{routes}"
        ),
    );
}

#[test]
fn another_network_is_dropped_in() {
    let dir = tempfile::tempdir().expect("a directory");
    make_images(&dir.path().join("data/nodes/node-2/agent/runtime/images"));
    let flags = ["--nodes", "2", "--disable", "network"];
    let cluster = Cluster::up_in(dir, Runtime::Embedded, &format!("{ENTER} && {OWN_ETC}"), &flags);
    let case = Case::new(&cluster, "other");
    let nodes = ["node", "node-2"].map(|name| {
        let path = format!("/api/v1/nodes/{name}");
        let node = case.until("a ready node", || case.read(&path), |node| condition(node, "Ready") == "True");
        let address = node.list("status.addresses")[0].str("address").to_string();
        (name, node.str("spec.podCIDR").to_string(), address)
    });
    for (name, cidr, _) in &nodes {
        let others = nodes.iter().filter(|other| other.0 != *name);
        let others: Vec<_> = others.map(|(_, cidr, address)| (cidr.clone(), address.clone())).collect();
        install(&cluster, name, cidr, &others);
    }
    for (name, ..) in &nodes {
        case.pod(
            name,
            &format!(
                "nodeName: {name}, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: IMAGE, command: \
                 [sh, -c, 'mkdir -p /tmp/cgi-bin; printf \"#!/bin/sh\\necho; echo {name} \\$REMOTE_ADDR\" > \
                 /tmp/cgi-bin/peer; chmod +x /tmp/cgi-bin/peer; exec httpd -f -p 8080 -h /tmp']}}]"
            ),
        );
        case.until_ready(name);
        client_with(&case, &format!("from-{name}"), &format!("nodeName: {name},"), &[]);
    }
    case.kubectl(&["expose", "pod", "node-2", "--name=web", "--port=80", "--target-port=8080"]);
    let address = |pod: &str| case.pods(pod).str("status.podIP").to_string();
    for (from, ..) in &nodes {
        assert!(
            on_node(&cluster, from, "ip link show master other0").contains("veth"),
            "pods of {from} are on the bridge"
        );
        let client = format!("from-{from}");
        let source = address(&client);
        for (to, ..) in &nodes {
            let url = format!("http://{}:8080/cgi-bin/peer", address(to));
            let seen = case.exec(&client, &format!("/usr/bin/curl -sS --max-time 10 {url}"));
            assert!(seen.starts_with(&format!("{to} ")) && seen.contains(&source), "from {from} ({source}): {seen}");
        }
        let seen = || answering(&case, &client, "http://web/cgi-bin/peer");
        case.until("the Service", seen, |seen| {
            seen.iter().all(|reply| reply.starts_with("node-2 ")) && !seen.is_empty()
        });
    }
}
