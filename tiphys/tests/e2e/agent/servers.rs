//! Several servers of a control plane on one etcd, and a node that balances over them.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use api::{Tree, tree};

use super::case::{condition, debians};
use super::cluster::{ANY_DISK, cgroup_of, make_images};
use super::control_plane::{ControlPlane, SERVERS, refused};
use crate::support::{BINARY, root};

#[test]
fn servers_share_a_control_plane() {
    let control_plane = ControlPlane::start();
    let etcd = ["--etcd-servers", "http://127.0.0.1:2379"];
    control_plane.server(0, &etcd);
    // A server with certificates of its own would be another cluster.
    let why = refused(
        &control_plane,
        &[&["server", "--data-dir", "other", "--bind-address", "192.0.2.12"], &etcd[..]].concat(),
    );
    assert!(why.contains("the store holds another cluster"), "{why}");

    let join = control_plane.tiphys(0, &["token", "create", "--control-plane"]);
    let words: Vec<&str> = join.split_whitespace().skip(2).collect();
    assert!(join.starts_with("tiphys server --server https://192.0.2.11:6443 --token "), "{join}");
    let node_token = control_plane.tiphys(0, &["token", "create"]);
    let with = |flag: &str, value: &str| -> Vec<String> {
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let at = words.iter().position(|word| word == flag).expect("a flag");
        words[at + 1] = value.to_string();
        words
    };
    let key = "00".repeat(32);
    for (flag, value, want) in [
        ("--certificate-key", key.as_str(), "--certificate-key: the certificate key does not fit"),
        ("--token", node_token.as_str(), "--token: it lets nodes join, and no servers"),
    ] {
        let words = with(flag, value);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let own = ["server", "--data-dir", "two", "--bind-address", "192.0.2.12"];
        let why = refused(&control_plane, &[&own[..], &words].concat());
        assert!(why.contains(want), "{why}");
    }
    versions_are_compared(&control_plane, &words);
    control_plane.server(1, &words);
    control_plane.server(2, &words);

    // One control plane: the same objects, the same keys, one leader.
    control_plane.kubectl(0, &["create", "configmap", "shared", "--from-literal=k=v"]);
    assert_eq!(control_plane.kubectl(1, &["get", "configmap", "shared", "--output=jsonpath={.data.k}"]), "v");
    control_plane.until("its account", || control_plane.try_kubectl(0, &["get", "serviceaccount", "default"]).is_ok());
    let post = |at: usize, path: &str, body: &Tree| {
        let file = control_plane.path("body.json");
        fs::write(&file, api::json::encode(body, None)).expect("a file");
        let response = control_plane.kubectl(at, &["create", "--raw", path, "-f", &file]);
        api::json::decode(response.as_bytes()).unwrap_or_else(|error| panic!("{response}: {error}"))
    };
    let request = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => tree! {} };
    let token: Tree = post(0, "/api/v1/namespaces/default/serviceaccounts/default/token", &request);
    let review = tree! {
        "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenReview",
        "spec" => tree! { "token" => token.str("status.token") },
    };
    let reviewed: Tree = post(2, "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    let is_valid = reviewed.at("status.authenticated").as_bool();
    assert_eq!(is_valid, Some(true), "a token of one server is valid for the others");
    let all: Vec<String> = SERVERS.iter().map(|(_, address)| address.to_string()).collect();
    control_plane.until("all endpoints", || control_plane.endpoints(1) == all);

    documented_commands_work(&control_plane);

    // Pods of a Deployment appear whichever server is killed.
    for at in [0, 1] {
        let leader = control_plane.holder(2, "kube-controller-manager");
        assert!(!leader.is_empty());
        control_plane.signal(SERVERS[at].0, "-9");
        let name = format!("after-{at}");
        let started = Instant::now();
        control_plane.kubectl(2, &["create", "deployment", &name, "--image=x"]);
        let has_pod = || {
            let query = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}");
            !control_plane.object(2, &query).list("items").is_empty()
        };
        control_plane.until("a pod", has_pod);
        println!("a pod {} ms after the kill of {}", started.elapsed().as_millis(), SERVERS[at].0);
        let left: Vec<String> = all[at + 1..].to_vec();
        control_plane.until("the endpoints that are left", || control_plane.endpoints(2) == left);
    }
    // A server that has joined needs no token to start again, and one that stops leaves the endpoints.
    control_plane.server(1, &[]);
    control_plane.until("its endpoint", || control_plane.endpoints(2) == all[1..]);
    control_plane.signal("two", "-TERM");
    control_plane.until("no endpoint", || control_plane.endpoints(2) == all[2..]);
}

/// A server does not start beside another one of a much older version, which renews its lease.
fn versions_are_compared(control_plane: &ControlPlane, join: &[&str]) {
    let mut annotations = tree! {};
    annotations.set("tiphys.io/kubernetes-version", "1.30");
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.000000Z"]).output().expect("date is there");
    let now = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let lease = tree! {
        "apiVersion" => "coordination.k8s.io/v1", "kind" => "Lease",
        "metadata" => tree! {
            "name" => "tiphys-server-192-0-2-99", "namespace" => "kube-system",
            "annotations" => annotations,
        },
        "spec" => tree! { "holderIdentity" => "192.0.2.99", "leaseDurationSeconds" => 8, "renewTime" => now },
    };
    let file = control_plane.path("lease.json");
    fs::write(&file, api::json::encode(&lease, None)).expect("a file");
    control_plane.kubectl(0, &["create", "-f", &file]);
    let own = ["server", "--data-dir", "two", "--bind-address", "192.0.2.12"];
    let why = refused(control_plane, &[&own[..], join].concat());
    assert!(why.contains("the one at 192.0.2.99 of 1.30"), "{why}");
    control_plane.kubectl(0, &["delete", "-f", &file]);
}

#[test]
fn a_node_leaves_a_dead_server() {
    let control_plane = ControlPlane::start();
    control_plane.server(0, &["--etcd-servers", "http://127.0.0.1:2379"]);
    let join = control_plane.tiphys(0, &["token", "create", "--control-plane"]);
    let words: Vec<&str> = join.split_whitespace().skip(2).collect();
    control_plane.server(1, &words);
    let join = control_plane.tiphys(0, &["token", "create", "--print-join-command"]);
    let dir = control_plane.cluster.dir.path();
    make_images(&dir.join("agent/runtime/images"));
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\ncgroupRoot: {}\n\
         nodeStatusUpdateFrequency: 1s\n{ANY_DISK}",
        cgroup_of(&control_plane.cluster.dir)
    );
    fs::write(dir.join("agent.yaml"), config).expect("a file");
    let words: Vec<&str> = join.split_whitespace().skip(1).collect();
    let own = ["--data-dir", "agent", "--node-name", "n1", "--kubelet-config", "agent.yaml", "--node-ip", "192.0.2.10"];
    let started = Instant::now();
    control_plane.spawn("agent", &[&words[..], &own].concat());
    let is_ready = |at: usize| condition(&control_plane.object(at, "/api/v1/nodes/n1"), "Ready") == "True";
    control_plane.until("a ready node", || is_ready(0));
    println!("the node is ready after {} ms", started.elapsed().as_millis());
    let knows_both = || {
        let known = fs::read_to_string(dir.join("agent/servers.json")).unwrap_or_default();
        known.contains("192.0.2.11") && known.contains("192.0.2.12")
    };
    control_plane.until("both servers are known", knows_both);
    let kubeconfig = fs::read_to_string(dir.join("agent/kubelet.conf")).expect("a file");
    assert!(kubeconfig.contains("https://127.0.0.1:6444"), "{kubeconfig}");
    // Each server reaches its kubelet.
    control_plane.kubectl(
        1,
        &[
            "run",
            "first",
            "--image=suite.local/busybox:1",
            "--image-pull-policy=Never",
            "--command",
            "--",
            "sh",
            "-c",
            "echo hello; exec sleep 1000",
        ],
    );
    let log = |at: usize| control_plane.try_kubectl(at, &["logs", "first"]).unwrap_or_default();
    control_plane.until("its log", || log(0) == "hello");
    assert_eq!(log(1), "hello");

    // Both a killed and a stalled server are left; the node stays ready, and its pods go on.
    for (at, signal) in [(0, "-STOP"), (1, "-KILL")] {
        let left = 1 - at;
        control_plane.signal(SERVERS[at].0, signal);
        let name = format!("pod-{at}");
        control_plane.kubectl(
            left,
            &[
                "run",
                &name,
                "--image=suite.local/busybox:1",
                "--image-pull-policy=Never",
                "--command",
                "--",
                "sleep",
                "1000",
            ],
        );
        let phase = || control_plane.try_kubectl(left, &["get", "pod", &name, "--output=jsonpath={.status.phase}"]);
        control_plane.until("a running pod", || phase().is_ok_and(|phase| phase == "Running"));
        assert!(is_ready(left), "the node has not been missed");
        if signal == "-STOP" {
            control_plane.signal(SERVERS[at].0, "-CONT");
            control_plane
                .until("the server is back", || control_plane.try_kubectl(at, &["get", "--raw", "/readyz"]).is_ok());
        }
    }
    // A node starts with the servers that it has kept, although that of its flag is dead.
    control_plane.signal("agent", "-TERM");
    let own = ["agent", "--server", "https://192.0.2.12:6443"];
    let more =
        ["--data-dir", "agent", "--node-name", "n1", "--kubelet-config", "agent.yaml", "--node-ip", "192.0.2.10"];
    control_plane.until("it has stopped", || {
        let pid = fs::read_to_string(control_plane.path("agent.pid")).expect("a file");
        let alive = control_plane.cluster.command("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status();
        !alive.expect("kill is there").success()
    });
    control_plane.spawn("agent", &[&own[..], &more].concat());
    control_plane.kubectl(
        0,
        &[
            "run",
            "last",
            "--image=suite.local/busybox:1",
            "--image-pull-policy=Never",
            "--command",
            "--",
            "sleep",
            "1000",
        ],
    );
    let phase = || control_plane.try_kubectl(0, &["get", "pod", "last", "--output=jsonpath={.status.phase}"]);
    control_plane.until("a running pod", || phase().is_ok_and(|phase| phase == "Running"));
}

/// The shell blocks of the page about servers and nodes, on the first server.
fn documented_commands_work(control_plane: &ControlPlane) {
    let page = fs::read_to_string(root().join("docs/operations/nodes.md")).expect("the page");
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 3, "the page shows commands");
    // `tiphys` and `kubectl` by their names, and the data directory where `tiphys certs` looks.
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(BINARY, dir.path().join("tiphys")).expect("a link");
    std::os::unix::fs::symlink(debians(), dir.path().join("kubectl")).expect("a link");
    std::os::unix::fs::symlink(control_plane.path("one"), dir.path().join("data")).expect("a link");
    // The node that leaves.
    let node = control_plane.path("leaving.yaml");
    fs::write(&node, "apiVersion: v1\nkind: Node\nmetadata: {name: leaving}\n").expect("a file");
    control_plane.kubectl(0, &["create", "-f", &node]);
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    for block in blocks {
        let mut command = Command::new("sh");
        command.args(["-ec", block]).current_dir(dir.path()).env("PATH", &path).env("NODE", "leaving");
        let output = command.env("KUBECONFIG", control_plane.path("one/kubeconfig")).output().expect("a shell");
        assert!(output.status.success(), "{block}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(control_plane.try_kubectl(0, &["get", "node", "leaving"]).is_err(), "it has left");
}
