//! `up --servers 3`: a highly available cluster on one machine, whose servers and members of etcd lose their power in
//! turns while clients use it.

use std::process::Output;
use std::time::Instant;

use super::case::{Case, debians};
use super::cluster::Cluster;
use super::node_commands::{node, node_ok};
use super::services;
use crate::support::root;

/// `TIPHYS_ROUNDS` of CONTRIBUTING: how often processes and hosts are killed.
pub fn rounds() -> u32 {
    std::env::var("TIPHYS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Retries: a request that was open when its server was killed has failed.
fn kubectl(case: &Case, args: &[&str]) -> String {
    let run = || {
        let output: Output = case.run_by(&debians(), &[&["--request-timeout=10s"], args].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    let done = |result: &Result<String, String>| match result {
        Ok(_) => true,
        Err(error) => error.contains("already exists"),
    };
    let more = || case.cluster.log();
    case.until_or(&format!("{args:?}"), run, done, more).unwrap_or_default()
}

/// The host that runs the controllers.
fn leader(case: &Case) -> String {
    let path = ["get", "lease", "--namespace=kube-system", "kube-controller-manager"];
    let holder = kubectl(case, &[&path[..], &["--output=jsonpath={.spec.holderIdentity}"]].concat());
    holder.split('_').next().unwrap_or_default().to_string()
}

fn ready_pods(case: &Case) -> String {
    kubectl(case, &["get", "deployment", "web", "--output=jsonpath={.status.readyReplicas}"])
}

/// A new Deployment gets its ReplicaSet.
fn reconciles(case: &Case, name: &str) {
    kubectl(case, &["create", "deployment", name, "--image=x"]);
    let sets = || kubectl(case, &["get", "replicasets", "-l", &format!("app={name}"), "--output=name"]);
    case.until(&format!("the ReplicaSet of {name}"), sets, |sets| sets.lines().count() == 1);
}

const POD_USER: &str = "system:serviceaccount:after:default";

/// The user name that the API server knows a pod by, which verifies the server as clients in pods do.
fn call_api(case: &Case) -> String {
    let script = "cd /var/run/secrets/kubernetes.io/serviceaccount; /usr/bin/curl -sS --max-time 20 --cacert ca.crt \
                  -H \"Authorization: Bearer $(cat token)\" -H 'Content-Type: application/json' \
                  -d '{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"SelfSubjectReview\"}' \
                  https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews || true";
    let reply = case.exec("client", script);
    let reply = api::json::decode(reply.as_bytes()).unwrap_or_default();
    reply.str("status.userInfo.username").to_string()
}

#[track_caller]
fn assert_pod_is_authenticated(case: &Case) {
    assert_eq!(call_api(case), POD_USER);
}

/// The block of the page about servers and nodes that starts such a cluster: the commands after the first.
fn documented_commands_work(cluster: &Cluster) {
    let page = std::fs::read_to_string(root().join("docs/operations/nodes.md")).expect("the page");
    let (_, rest) = page.split_once("tiphys up --nodes 3 --servers 3\n").expect("the page starts a cluster");
    let (block, _) = rest.split_once("```").expect("the block ends");
    assert_eq!(block.lines().count(), 3, "{block}");
    for line in block.lines() {
        let words: Vec<&str> = line.strip_prefix("tiphys node ").expect("a command").split_whitespace().collect();
        node_ok(cluster, &words);
    }
}

#[test]
fn a_machine_has_a_highly_available_cluster() {
    let cluster = Cluster::up_with_servers(3);
    let case = Case::new(&cluster, "survives");
    case.apply(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, \
         template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: \
         IMAGE, command: [sh, -c, 'echo web > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}], topologySpreadConstraints: \
         [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: \
         {app: web}}}]}}}}",
    );
    case.until("a pod on each server", || ready_pods(&case), |ready| ready == "3");
    let list = node_ok(&cluster, &["list"]);
    assert_eq!(list.lines().filter(|line| line.contains("running") && line.ends_with("server")).count(), 3, "{list}");
    assert_eq!(list.lines().filter(|line| line.contains("running") && line.ends_with("etcd")).count(), 3, "{list}");
    documented_commands_work(&cluster);
    for round in 0..rounds() {
        for host in [leader(&case), format!("node-etcd-{}", 1 + round % 3)] {
            let started = Instant::now();
            node_ok(&cluster, &["stop", "--power-off", &host]);
            reconciles(&case, &format!("without-{host}-{round}"));
            println!("reconciled {} ms after {host} was switched off", started.elapsed().as_millis());
            assert_ne!(leader(&case), host);
            node_ok(&cluster, &["start", &host]);
        }
    }
    case.until("all pods", || ready_pods(&case), |ready| ready == "3");
    // A pod in the cluster reaches the API server through its Service, whichever servers are there.
    let after = Case::new(&cluster, "after");
    services::client_with(&after, "client", "", &[]);
    assert_pod_is_authenticated(&after);
    // The pod's own host stays.
    let own = after.pods("client").str("spec.nodeName").to_string();
    let other = ["node-1", "node-2", "node-3"].into_iter().find(|host| *host != own).expect("another host");
    node_ok(&cluster, &["stop", "--power-off", other]);
    let servers = || {
        kubectl(
            &case,
            &[
                "get",
                "endpointslice",
                "kubernetes",
                "--namespace=default",
                "--output=jsonpath={.endpoints[*].addresses[0]}",
            ],
        )
    };
    case.until("the endpoints of two servers", servers, |addresses| addresses.split(' ').count() == 2);
    // The proxy of the pod's host may not have the change yet.
    let call = || call_api(&after);
    after.until("the remaining servers", call, |user| user == POD_USER);
    for _ in 0..10 {
        assert_pod_is_authenticated(&after);
    }
    node_ok(&cluster, &["start", other]);
    for (args, want) in [
        (&["remove", "node-1"][..], "node-1 belongs to the control plane"),
        (&["remove", "node-etcd-1"], "node-etcd-1 belongs to the control plane"),
        (&["stop", "node"], "there is no node \"node\""),
    ] {
        let output = node(&cluster, args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(want), "{args:?}: {error}");
    }
}
