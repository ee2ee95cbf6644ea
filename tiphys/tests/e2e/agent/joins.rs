//! Machines that join a cluster whose components are separate processes: `kubelet` with the flags of kubeadm, and
//! `agent` with the command that is printed with a token.

use std::fs;
use std::process::{Command, Stdio};

use super::case::{Case, ChildProcess, condition, success_output};
use super::cluster::{ADDRESS, ANY_DISK, Cluster, ENTER, Runtime, cgroup_of, make_images};
use crate::support::BINARY;

const TOKEN: &str = "abcdef.0123456789abcdef";

/// The runtime of `kubelet` uses a fixed directory of the machine: a directory of the test is mounted there.
const ENTER_WITH_DIRECTORY: &str = "mkdir -p /var/lib/tiphys node && mount --bind node /var/lib/tiphys";

/// The output of a command of the administrator.
#[track_caller]
pub fn tiphys(cluster: &Cluster, args: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    let output = command.args(args).env("KUBECONFIG", cluster.kubeconfig()).output().expect("the binary runs");
    success_output(args, &output)
}

/// The API server, the controllers and the scheduler, each a process.
fn control_plane() -> (Cluster, [ChildProcess; 2]) {
    let dir = tempfile::tempdir().expect("a directory");
    let words = [
        "kube-apiserver",
        "--data-dir=data",
        "--bind-address=0.0.0.0",
        "--secure-port=6443",
        "--authorization-mode=Node,RBAC",
        "--enable-bootstrap-token-auth=true",
    ];
    let words = words.map(str::to_string);
    let script = format!("{ENTER} && {ENTER_WITH_DIRECTORY}");
    let cluster = Cluster::run(dir, Runtime::Embedded, &script, &words);
    cluster.enter();
    let manager = cluster.spawn(&[
        "kube-controller-manager",
        "--kubeconfig=data/kubeconfig",
        "--cluster-signing-cert-file=data/pki/ca.crt",
        "--cluster-signing-key-file=data/pki/ca.key",
        "--root-ca-file=data/pki/ca.crt",
        "--service-account-private-key-file=data/pki/sa.key",
        "--use-service-account-credentials=true",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.88.0.0/16",
        "--controllers=*,bootstrapsigner,tokencleaner",
    ]);
    let scheduler = cluster.spawn(&["kube-scheduler", "--kubeconfig=data/kubeconfig"]);
    (cluster, [manager, scheduler])
}

pub fn configuration(cluster: &Cluster, more: &str) -> String {
    let data = cluster.dir.path().join("data");
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\nmaxPods: 50\n\
         clusterDomain: cluster.local\ncgroupRoot: {}\nrotateCertificates: true\n\
         authentication: {{x509: {{clientCAFile: {}/pki/ca.crt}}}}\n{ANY_DISK}{more}",
        cgroup_of(&cluster.dir),
        data.display()
    )
}

/// The bootstrap kubeconfig of kubeadm, with the token as the user.
fn bootstrap_kubeconfig(cluster: &Cluster) -> String {
    let known = fs::read_to_string(cluster.kubeconfig()).expect("a file");
    let ca = known.lines().find(|line| line.contains("certificate-authority-data")).expect("a CA bundle");
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: 'https://{ADDRESS}:6443', \
         {}}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers: [{{name: u, user: {{token: {TOKEN}}}}}]\n",
        ca.trim()
    )
}

#[test]
fn machines_join_by_tokens() {
    let (cluster, _parts) = control_plane();
    let all = Case::of_cluster(&cluster);
    let tiphys = |args: &[&str]| tiphys(&cluster, args);
    assert_eq!(tiphys(&["token", "create", TOKEN]), TOKEN);
    let dir = cluster.dir.path();
    make_images(&dir.join("node/runtime/images"));
    fs::write(dir.join("config.yaml"), configuration(&cluster, "")).expect("a file");
    fs::write(dir.join("bootstrap-kubelet.conf"), bootstrap_kubeconfig(&cluster)).expect("a file");
    let kubelet = cluster.spawn(&[
        "kubelet",
        "--bootstrap-kubeconfig=bootstrap-kubelet.conf",
        "--kubeconfig=kubelet.conf",
        "--config=config.yaml",
        "--pod-infra-container-image=suite.local/pause:1",
        "--hostname-override=n1",
        "--node-ip=192.0.2.10",
        "--node-labels=disk=fast",
        "--register-with-taints=suite.local/own=x:PreferNoSchedule",
        "--cgroup-driver=cgroupfs",
        "--root-dir=kubelet",
        "--v=2",
    ]);
    let node = becomes_ready(&all, "n1");
    assert_eq!(node.at("metadata.labels").str("disk"), "fast");
    assert_eq!(node.str("status.capacity.pods"), "50");
    assert_eq!(node.list("spec.taints")[0].str("key"), "suite.local/own");
    let requests = all.kubectl(&["get", "certificatesigningrequests", "--no-headers"]);
    assert!(requests.contains("system:bootstrap:abcdef") && requests.contains("Approved,Issued"), "{requests}");
    assert!(fs::exists(dir.join("kubelet/pki/kubelet-client-current.pem")).expect("a look"));
    all.pod(
        "first",
        "nodeName: n1, containers: [{name: main, image: IMAGE, command: [sh, -c, 'echo hello; exec sleep 1000']}]",
    );
    all.until_ready("first");
    // The API server authenticates to the kubelet with its certificate.
    assert_eq!(all.kubectl(&["logs", "first"]), "hello");
    assert_eq!(all.exec("first", "hostname"), "first");
    let shown = all.kubectl(&["get", "--raw", "/api/v1/nodes/n1/proxy/configz"]);
    assert!(shown.contains("\"maxPods\":50"), "{shown}");
    // Strangers are not let in.
    let mut curl = Command::new("curl");
    let code = curl.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "https://192.0.2.10:10250/pods"]).output();
    assert_eq!(String::from_utf8_lossy(&code.expect("curl is there").stdout), "401");

    let join = tiphys(&["token", "create", "--print-join-command"]);
    let words: Vec<&str> = join.split_whitespace().skip(1).collect();
    make_images(&dir.join("second/runtime/images"));
    let more = "port: 10350\nhealthzPort: 10348\n";
    fs::write(dir.join("second.yaml"), configuration(&cluster, more)).expect("a file");
    let own = ["--data-dir=second", "--node-name=n2", "--kubelet-config=second.yaml", "--node-ip=192.0.2.10"];
    let agent = cluster.spawn(&[&words[..], &own].concat());
    becomes_ready(&all, "n2");
    all.pod("second", "nodeName: n2, hostNetwork: true, containers: [{name: main, image: IMAGE}]");
    all.until_ready("second");
    assert_eq!(all.exec("second", "echo in"), "in");
    let log = fs::read_to_string(dir.join("log")).expect("a file");
    assert!(log.contains("the cluster has no ConfigMap kube-system/tiphys-network"), "{log}");
    let mut reset = cluster.command(BINARY);
    let reset = reset.args(["reset", "--data-dir=second", "--force"]).output().expect("nsenter is there");
    let why = String::from_utf8_lossy(&reset.stderr);
    assert!(!reset.status.success() && why.contains("in use by another tiphys process (pid"), "{why}");
    // A machine that has joined needs no token any more.
    assert!(tiphys(&["token", "list"]).contains(TOKEN));
    assert_eq!(tiphys(&["token", "delete", TOKEN]), "bootstrap token \"abcdef\" deleted");
    assert!(!tiphys(&["token", "list"]).contains(TOKEN));
    let mut again = Command::new(BINARY);
    let again = again.args(["token", "delete", "abcdef"]).env("KUBECONFIG", cluster.kubeconfig()).output();
    let again = again.expect("the binary runs");
    let why = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && why.contains("failed to delete bootstrap token \"abcdef\""), "{why}");
    drop((kubelet, agent));
}

/// The API server of `up` connects only to kubelets whose certificates its own CA has signed.
#[test]
fn up_verifies_the_kubelets_of_machines_that_join() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["up", "--disable-agent", "--bind-address", "0.0.0.0", "--data-dir", "data"].map(str::to_string);
    let cluster = Cluster::run(dir, Runtime::Embedded, &format!("{ENTER} && {ENTER_WITH_DIRECTORY}"), &words);
    cluster.enter();
    let all = Case::of_cluster(&cluster);
    let dir = cluster.dir.path();
    let tiphys = |args: &[&str]| tiphys(&cluster, args);
    let join = tiphys(&["token", "create", TOKEN, "--print-join-command"]);
    assert!(join.contains(&format!("--server https://{ADDRESS}:6443 ")), "{join}");
    make_images(&dir.join("agent/runtime/images"));
    fs::write(dir.join("agent.yaml"), configuration(&cluster, "")).expect("a file");
    let words: Vec<&str> = join.split_whitespace().skip(1).collect();
    let own = ["--data-dir=agent", "--node-name=signed", "--kubelet-config=agent.yaml"];
    let _agent = cluster.spawn(&[&words[..], &own].concat());

    make_images(&dir.join("node/runtime/images"));
    let more = "port: 10350\nhealthzPort: 10348\n";
    fs::write(dir.join("config.yaml"), configuration(&cluster, more)).expect("a file");
    fs::write(dir.join("bootstrap-kubelet.conf"), bootstrap_kubeconfig(&cluster)).expect("a file");
    let _kubelet = cluster.spawn(&[
        "kubelet",
        "--bootstrap-kubeconfig=bootstrap-kubelet.conf",
        "--kubeconfig=kubelet.conf",
        "--config=config.yaml",
        "--hostname-override=unsigned",
        "--node-ip=127.0.0.1",
        "--root-dir=kubelet",
    ]);
    for node in ["signed", "unsigned"] {
        becomes_ready(&all, node);
        let container = "name: main, image: IMAGE, command: [sh, -c, 'echo hello; exec sleep 1000']";
        all.pod(node, &format!("nodeName: {node}, hostNetwork: true, containers: [{{{container}}}]"));
        all.until_ready(node);
    }
    let logs = || String::from_utf8_lossy(&all.run(&["logs", "signed"]).stdout).into_owned();
    all.until_or("the log over a signed certificate", logs, |log| log == "hello\n", || cluster.log());
    assert_eq!(all.exec("signed", "echo in"), "in");
    let why = all.refused(&["logs", "unsigned"]);
    assert!(why.contains("certificate"), "{why}");
}

pub fn becomes_ready(all: &Case, name: &str) -> api::Tree {
    let look = || all.read(&format!("/api/v1/nodes/{name}"));
    let is_ready = |node: &api::Tree| condition(node, "Ready") == "True";
    let node = all.until_or(&format!("node {name}"), look, is_ready, || all.cluster.log());
    all.until("its account", || all.object("serviceaccounts", "default"), |account| !account.is_null());
    node
}

#[test]
fn invalid_kubelet_configurations_are_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (text, expected) in [
        ("maxPods: many\n", &["config.yaml", "maxPods"][..]),
        ("noSuchField: 1\n", &["config.yaml", "noSuchField"]),
        ("evictionHard: {memory.available: lots}\n", &["evictionHard", "lots"]),
    ] {
        fs::write(dir.path().join("config.yaml"), format!("{head}{text}")).expect("a file");
        let mut command = Command::new(BINARY);
        command.args(["kubelet", "--kubeconfig=none", "--config"]).arg(dir.path().join("config.yaml"));
        let output = command.stdin(Stdio::null()).output().expect("the binary runs");
        let error_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && expected.iter().all(|word| error_text.contains(word)),
            "{text}: {error_text}"
        );
    }
}
