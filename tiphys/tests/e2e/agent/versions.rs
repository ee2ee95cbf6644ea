//! Upgrades: servers, controllers and kubelets of two minor versions in one cluster, in both orders, and what is refused.
//! A debug build reports the version that a variable names.

use std::fs;
use std::process::Stdio;

use super::case::condition;
use super::cluster::{ANY_DISK, cgroup_of, make_images};
use super::control_plane::{ControlPlane, SERVERS, refused_as};

const NODE: &str = "n1";

/// A kubelet of a version joins, or starts again.
fn start_agent(control_plane: &ControlPlane, minor: u32, join: &[&str]) {
    let own = ["--data-dir", "agent", "--node-name", NODE, "--kubelet-config", "agent.yaml", "--node-ip", "192.0.2.10"];
    control_plane.spawn_as(Some(minor), "agent", &[join, &own].concat());
    let version = format!("v1.{minor}.0");
    control_plane.until(&format!("a kubelet of {version}"), || {
        (0..SERVERS.len()).any(|at| {
            let node = control_plane.object(at, &format!("/api/v1/nodes/{NODE}"));
            node.str("status.nodeInfo.kubeletVersion").starts_with(&version) && condition(&node, "Ready") == "True"
        })
    });
}

/// A Deployment gets its pods, which run: controllers, scheduler and kubelet work with this server.
fn deploy(control_plane: &ControlPlane, at: usize, name: &str) {
    let words = ["create", "deployment", name, "--image=suite.local/busybox:1", "--replicas=2"];
    control_plane.until("the deployment", || control_plane.try_kubectl(at, &words).is_ok());
    let ready = ["get", "deployment", name, "--output=jsonpath={.status.readyReplicas}"];
    control_plane.until(&format!("the pods of {name}"), || {
        control_plane.try_kubectl(at, &ready).is_ok_and(|count| count == "2")
    });
}

fn version_of(control_plane: &ControlPlane, at: usize) -> String {
    control_plane.object(at, "/version").str("minor").to_string()
}

#[test]
fn a_cluster_is_upgraded_and_downgraded_part_by_part() {
    let control_plane = ControlPlane::start();
    let dir = control_plane.cluster.dir.path();
    make_images(&dir.join("agent/runtime/images"));
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\ncgroupRoot: {}\n\
         nodeStatusUpdateFrequency: 1s\n{ANY_DISK}",
        cgroup_of(&control_plane.cluster.dir)
    );
    fs::write(dir.join("agent.yaml"), config).expect("a file");
    let server = |minor: u32, at: usize, more: &[&str]| {
        control_plane.server_as(Some(minor), at, more);
        assert_eq!(version_of(&control_plane, at), minor.to_string());
    };
    // The old cluster: a server, its controllers and a kubelet.
    server(36, 0, &["--etcd-servers", "http://127.0.0.1:2379"]);
    let printed = control_plane.tiphys(0, &["token", "create", "--control-plane"]);
    let join: Vec<&str> = printed.split_whitespace().skip(2).collect();
    let printed = control_plane.tiphys(0, &["token", "create", "--print-join-command"]);
    let join_node: Vec<&str> = printed.split_whitespace().skip(1).collect();
    kubelets_are_refused(&control_plane, &join_node, &[(37, "upgrade the API server first")]);
    managers_are_refused(&control_plane, 0, &[(37, "upgrade the API server first")]);
    start_agent(&control_plane, 36, &join_node);
    deploy(&control_plane, 0, "old");

    // A newer server beside the older one, which still leads; the server after next is refused.
    let as_third = [&["server", "--data-dir", "three", "--bind-address", "192.0.2.13"][..], &join].concat();
    let why = refused_as(&control_plane, Some(38), &as_third);
    assert!(why.contains("this server is of Kubernetes 1.38, and the one at 192.0.2.11 of 1.36"), "{why}");
    server(37, 1, &join);
    let why = refused_as(&control_plane, Some(35), &as_third);
    assert!(why.contains("this server is of Kubernetes 1.35, and the one at 192.0.2.12 of 1.37"), "{why}");
    assert_eq!((version_of(&control_plane, 0), version_of(&control_plane, 1)), ("36".to_string(), "37".to_string()));
    deploy(&control_plane, 0, "by-old-beside-new");
    deploy(&control_plane, 1, "by-new-beside-old");

    // Servers first, then the kubelet.
    stop(&control_plane, SERVERS[0].0);
    deploy(&control_plane, 1, "with-old-kubelet");
    kubelets_are_refused(
        &control_plane,
        &join_node_of(&control_plane, 1),
        &[(38, "upgrade the API server first"), (33, "more than 3 minor versions older")],
    );
    managers_are_refused(
        &control_plane,
        1,
        &[(38, "upgrade the API server first"), (35, "more than 1 minor versions older")],
    );
    server(37, 0, &[]);
    stop(&control_plane, "agent");
    start_agent(&control_plane, 37, &["agent", "--server", "https://192.0.2.12:6443"]);
    deploy(&control_plane, 0, "new");

    // Back, in the other order: the kubelet first, since it may not be newer than a server.
    stop(&control_plane, "agent");
    start_agent(&control_plane, 36, &["agent", "--server", "https://192.0.2.12:6443"]);
    stop(&control_plane, SERVERS[0].0);
    server(36, 0, &[]);
    deploy(&control_plane, 0, "by-old-after-new");
    deploy(&control_plane, 1, "by-new-before-old");
    stop(&control_plane, SERVERS[1].0);
    server(36, 1, &[]);
    deploy(&control_plane, 1, "old-again");
}

fn join_node_of(control_plane: &ControlPlane, at: usize) -> Vec<String> {
    let printed = control_plane.tiphys(at, &["token", "create", "--print-join-command"]);
    printed.split_whitespace().skip(1).map(str::to_string).collect()
}

/// A process ends in good order.
fn stop(control_plane: &ControlPlane, name: &str) {
    let pid = fs::read_to_string(control_plane.path(&format!("{name}.pid"))).expect("a file");
    control_plane.signal(name, "-TERM");
    control_plane.until("it has stopped", || {
        let alive = control_plane.cluster.command("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status();
        !alive.expect("kill is there").success()
    });
}

/// Kubelets of these versions do not start; they use a data directory of their own.
fn kubelets_are_refused(control_plane: &ControlPlane, join: &[impl AsRef<str>], cases: &[(u32, &str)]) {
    let join: Vec<&str> = join.iter().map(AsRef::as_ref).collect();
    for (minor, want) in cases {
        let data_dir = format!("kubelet-{minor}");
        let own = ["--data-dir", &data_dir, "--node-name", "other", "--kubelet-config", "agent.yaml"];
        let why = refused_as(control_plane, Some(*minor), &[&join[..], &own].concat());
        assert!(why.contains(&format!("of Kubernetes 1.{minor}")) && why.contains(want), "{minor}: {why}");
    }
}

/// The same of controllers as a process of their own.
fn managers_are_refused(control_plane: &ControlPlane, at: usize, cases: &[(u32, &str)]) {
    let kubeconfig = format!("--kubeconfig={}/kubeconfig", SERVERS[at].0);
    for (minor, want) in cases {
        for component in ["kube-controller-manager", "kube-scheduler"] {
            let why = refused_as(control_plane, Some(*minor), &[component, &kubeconfig]);
            assert!(
                why.contains(&format!("of Kubernetes 1.{minor}")) && why.contains(want),
                "{component} {minor}: {why}"
            );
        }
    }
}
