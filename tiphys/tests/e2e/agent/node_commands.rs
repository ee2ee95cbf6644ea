//! `tiphys node` on a running `up --nodes`, and what becomes of the pods of nodes that lose their power or their network.

use std::process::{Command, Output};

use super::case::{Case, condition};
use super::cluster::Cluster;
use crate::support::BINARY;

const TOLERATIONS: &str = "terminationGracePeriodSeconds: 1, tolerations: [\
    {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}, \
    {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]";

pub fn node(cluster: &Cluster, args: &[&str]) -> Output {
    let data_dir = cluster.dir.path().join("data");
    let mut command = Command::new(BINARY);
    command.arg("node").args(args).arg("--data-dir").arg(data_dir).output().expect("the binary runs")
}

#[track_caller]
pub fn node_ok(cluster: &Cluster, args: &[&str]) -> String {
    let output = node(cluster, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error} {}", cluster.log());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_ready(all: &Case, name: &str, want: &str) {
    let look = || condition(&all.read(&format!("/api/v1/nodes/{name}")), "Ready").to_string();
    all.until_or(&format!("node {name}: Ready is {want}"), look, |ready| ready == want, || all.cluster.log());
}

#[test]
fn nodes_of_a_machine_are_added_stopped_and_removed() {
    let cluster = Cluster::up_with_nodes(2);
    let all = Case::of_cluster(&cluster);
    let uid = |name: &str| all.read(&format!("/api/v1/nodes/{name}")).str("metadata.uid").to_string();
    assert_eq!(node_ok(&cluster, &["add"]), "node-3 added\n");
    is_ready(&all, "node-3", "True");
    let list = node_ok(&cluster, &["list"]);
    for (name, state) in [("node ", "running"), ("node-2", "running"), ("node-3", "running")] {
        assert!(list.lines().any(|line| line.starts_with(name) && line.contains(state)), "{list}");
    }
    let first = uid("node-2");
    node_ok(&cluster, &["stop", "node-2"]);
    assert!(node_ok(&cluster, &["list"]).lines().any(|line| line.starts_with("node-2") && line.contains("stopped")));
    node_ok(&cluster, &["start", "node-2"]);
    is_ready(&all, "node-2", "True");
    assert_eq!(uid("node-2"), first, "it is the same node");
    // A node that was deleted while it was off registers again with its old data directory.
    node_ok(&cluster, &["stop", "node-2"]);
    all.kubectl(&["delete", "node", "node-2"]);
    node_ok(&cluster, &["start", "node-2"]);
    is_ready(&all, "node-2", "True");
    assert_ne!(uid("node-2"), first, "it is another node of the same name");
    node_ok(&cluster, &["remove", "node-3"]);
    assert!(all.read("/api/v1/nodes/node-3").str("metadata.name").is_empty());
    assert!(!cluster.dir.path().join("data/nodes/node-3").exists());
    for (args, want) in [
        (&["stop", "node"][..], "this machine, which runs the control plane"),
        (&["start", "node-2"], "runs already"),
        (&["remove", "node-9"], "there is no node \"node-9\""),
    ] {
        let output = node(&cluster, args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(want), "{args:?}: {error}");
    }
    let other = tempfile::tempdir().expect("a directory");
    let output = Command::new(BINARY).args(["node", "list", "--data-dir"]).arg(other.path()).output();
    let error = String::from_utf8_lossy(&output.expect("the binary runs").stderr).into_owned();
    assert!(error.contains("no `tiphys up --nodes N` runs on"), "{error}");
}

/// Pods of a node that is cut off are replaced, except for those of a StatefulSet, which may still run there.
#[test]
fn pods_of_a_node_that_is_cut_off_are_not_doubled() {
    let cluster = Cluster::up_with_nodes_and(3, &["--controller-manager-arg", "node-monitor-grace-period=15s"]);
    let case = Case::new(&cluster, "cut-off");
    let spread = |label: &str| {
        format!(
            "topologySpreadConstraints: [{{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: \
             ScheduleAnyway, labelSelector: {{matchLabels: {{app: {label}}}}}}}]"
        )
    };
    let template = |label: &str| {
        format!(
            "{{metadata: {{labels: {{app: {label}}}}}, spec: {{{TOLERATIONS}, {}, containers: [{{name: main, image: \
             suite.local/busybox:1, command: [sleep, '100000']}}]}}}}",
            spread(label)
        )
    };
    let manifest = format!(
        "# kubectl takes a file that begins with a brace for JSON.\n\
         {{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: one}}, spec: {{replicas: 3, serviceName: one, \
         podManagementPolicy: Parallel, selector: {{matchLabels: {{app: one}}}}, template: {}}}}}\n---\n\
         {{apiVersion: apps/v1, kind: Deployment, metadata: {{name: many}}, spec: {{replicas: 3, selector: {{matchLabels: \
         {{app: many}}}}, template: {}}}}}\n",
        template("one"),
        template("many")
    );
    let file = case.file("workloads.yaml", &manifest);
    case.kubectl(&["create", "-f", &file]);
    let ready = |kind: &str| case.kubectl(&["get", kind, "--output=jsonpath={.status.readyReplicas}"]);
    case.until("the pods of the StatefulSet", || ready("statefulset/one"), |ready| ready == "3");
    case.until("the pods of the Deployment", || ready("deployment/many"), |ready| ready == "3");
    let on_node = |label: &str| {
        case.kubectl(&[
            "get",
            "pods",
            "-l",
            &format!("app={label}"),
            "--field-selector=spec.nodeName=node-3",
            "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}",
        ])
    };
    let stuck = on_node("one");
    let (name, uid) = stuck.lines().next().and_then(|line| line.split_once(' ')).expect("a pod on the node");

    let link = |state: &str| {
        let status = cluster.command("ip").args(["link", "set", "tiphys0-n3", state]).status();
        assert!(status.expect("ip is there").success());
    };
    link("down");
    is_ready(&case, "node-3", "Unknown");
    let live = || {
        case.kubectl(&[
            "get",
            "pods",
            "-l",
            "app=many",
            "--output=jsonpath={range .items[*]}{.spec.nodeName} {.status.phase} \
            {.metadata.deletionTimestamp}{\"\\n\"}{end}",
        ])
    };
    let is_replaced = |pods: &String| {
        pods.lines().filter(|pod| !pod.starts_with("node-3 ") && pod.trim_end().ends_with("Running")).count() == 3
    };
    case.until("the Deployment elsewhere", live, is_replaced);
    let pod = || case.pods(name);
    case.until("the pod of the StatefulSet is deleted", pod, |pod| !pod.str("metadata.deletionTimestamp").is_empty());
    assert_eq!(pod().str("metadata.uid"), uid, "it is not replaced: it may still run");

    link("up");
    is_ready(&case, "node-3", "True");
    let is_new =
        |pod: &api::Tree| !pod.is_null() && pod.str("metadata.uid") != uid && condition(pod, "Ready") == "True";
    case.until("another pod of the StatefulSet", pod, is_new);
    case.until("the pods of the Deployment", || ready("deployment/many"), |ready| ready == "3");
    let count = || live().lines().count();
    case.until("no pod too many", count, |count| *count == 3);
}
