//! A machine that leaves: `kubectl delete node` while it runs, and `tiphys agent reset`. Nothing is left on either side.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::case::{Case, success_output};
use super::cluster::{ANY_DISK, Cluster, NODE, Runtime, cgroup_of, make_images};
use super::joins::{becomes_ready, tiphys};
use super::machine::Machine;
use crate::support::BINARY;

/// Pods of a node that was deleted stay for the quarantine of the garbage collector.
const DEADLINE: Duration = Duration::from_secs(150);

/// Routes, forwarding entries and neighbours that lead to other nodes.
const ROUTES: &str = "ip route show proto 84; if ip link show tiphys0-vx >/dev/null 2>&1; then \
    bridge fdb show dev tiphys0-vx | grep dst || true; ip neighbour show dev tiphys0-vx nud permanent; fi";

/// What the pods and the network of a node are on its machine.
const TRACES: &str = "ip -o link | grep -E 'tiphys|veth' || true; nft list tables; ls /run/tiphys 2>/dev/null || true; \
    ip route show proto 84; grep /second/ /proc/self/mounts || true";

fn here(cluster: &Cluster, script: &str) -> String {
    success_output(&[script], &cluster.command("sh").args(["-ec", script]).output().expect("a shell"))
}

fn until(what: &str, more: impl Fn() -> String, holds: impl Fn() -> bool) {
    stdx::wait::until_ok(what, DEADLINE, || if holds() { Ok(()) } else { Err(more()) });
}

#[test]
fn a_machine_leaves_and_nothing_is_left() {
    let cluster = Cluster::up_with(Runtime::Embedded, &["--bind-address", "0.0.0.0"]);
    let all = Case::of_cluster(&cluster);
    becomes_ready(&all, NODE);
    let second = Machine::on_link(&cluster, "second", "192.0.2.20");
    let dir = cluster.dir.path();
    make_images(&dir.join("second/runtime/images"));
    // Below the cgroup of the cluster's name, but not in that of the first node.
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\ncgroupRoot: {}-second\n{ANY_DISK}",
        cgroup_of(&cluster.dir)
    );
    fs::write(dir.join("second.yaml"), config).expect("a file");
    let join = tiphys(&cluster, &["token", "create", "--print-join-command"]);
    let words: Vec<&str> = join.split_whitespace().skip(1).collect();
    let own = ["--data-dir=second", "--node-name=second", "--kubelet-config=second.yaml", "--node-ip=192.0.2.20"];
    let agent = second.spawn(&[&words[..], &own].concat());
    becomes_ready(&all, "second");
    run_pods(&cluster, &second, &all);

    // Deleted while it runs.
    all.kubectl(&["delete", "node", "second"]);
    until("no route to the second node", || here(&cluster, ROUTES), || here(&cluster, ROUTES).is_empty());
    until("no route of the second node", || second.shell(ROUTES), || second.shell(ROUTES).is_empty());
    until("no pod of it", || cluster.log(), || all.pods("away").is_null());
    let links = || second.shell("ip -o link");
    until("no link of a pod", links, || !links().contains("veth"));

    // It is a node again when it starts again, and needs no token.
    second.stop();
    drop(agent);
    let agent = second.spawn(&[&["agent", "--server", "https://192.0.2.10:6443"], &own[..]].concat());
    let all = Case::of_cluster(&cluster);
    becomes_ready(&all, "second");
    all.kubectl(&["delete", "pod", "here", "--now"]);
    run_pods(&cluster, &second, &all);

    // Its pods run on without it, until it is reset.
    second.stop();
    drop(agent);
    assert!(second.shell("ip -o link").contains("veth"), "the pod runs");
    let words = ["agent", "reset", "--force", "--data-dir=second"];
    let output = second.command(BINARY).args(words).stdin(Stdio::null()).output().expect("nsenter is there");
    success_output(&words, &output);
    assert_eq!(second.shell(TRACES), "", "nothing is left");
    assert!(!dir.join("second").exists());
    let cgroups = cluster.cgroups();
    assert!(!cgroups.iter().any(|path| path.to_string_lossy().contains("-second")), "{cgroups:?}");
    // The cluster does not know of that, until the node is deleted.
    all.kubectl(&["delete", "node", "second"]);
    until("no route to the second node", || here(&cluster, ROUTES), || here(&cluster, ROUTES).is_empty());
}

/// A pod on each node; they reach each other.
fn run_pods(cluster: &Cluster, second: &Machine, all: &Case) {
    for (pod, node) in [("here", NODE), ("away", "second")] {
        all.pod(
            pod,
            &format!(
                "nodeName: {node}, terminationGracePeriodSeconds: 1, containers: [{{name: main, image: IMAGE, command: [sh, -c, \
                 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}}]"
            ),
        );
    }
    all.until_ready("here");
    let ip = all.until_ready("away").str("status.podIP").to_string();
    let page = || {
        let get = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {ip} 8080 | tail -1");
        all.exec("here", &get)
    };
    all.until_or(
        "the other node's pod",
        page,
        |page| page == "away",
        || format!("{}\n{}\n{}\n{}", here(cluster, ROUTES), second.shell(ROUTES), second.log(), cluster.log()),
    );
    assert!(!here(cluster, ROUTES).is_empty());
}
