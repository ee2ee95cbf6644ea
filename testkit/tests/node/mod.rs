//! The Node object of a kubelet, through the API. The kubelet acts as a node under the Node authorizer and
//! NodeRestriction, so that a rejected write fails here. Its runtime is a socket without a server.

mod join;
mod serving;

use std::sync::Arc;

use api::{Tree, tree};
use client::{Events, Metrics, Random};
use cluster::control_plane::in_process::LocalClients;
use kubelet::Config;
use kubelet::config::Taint;
use kubelet::node::{Environment, Node};
use stdx::clock::SystemClock;
use testkit::{Client, Cluster};
use tokio::task::JoinHandle;

const NODE: &str = "/api/v1/nodes/n1";

fn config() -> Config {
    Config {
        node_name: "n1".to_string(),
        hostname: "host-1".to_string(),
        root_dir: "/tmp".into(),
        node_labels: vec![("disk".to_string(), "fast".to_string())],
        register_with_taints: vec![Taint {
            key: "dedicated".to_string(),
            value: "x".to_string(),
            effect: "NoSchedule".to_string(),
        }],
        node_ips: vec![[127, 0, 0, 1].into()],
        ..Config::default()
    }
}

fn start(cluster: &Cluster, config: Config) -> (Arc<Node>, JoinHandle<()>) {
    let client = LocalClients::new(cluster.server()).client("kubelet", "system:node:n1".to_string(), &["system:nodes"]);
    let clock = Arc::new(SystemClock);
    let events = Events::start(clock.clone(), Metrics::default());
    let (runtime, images) = cri::connect(std::path::Path::new("/nonexistent/cri.sock"));
    let node = Node::new(Environment {
        recorder: events.recorder(client.clone(), "kubelet").on("n1"),
        config: Arc::new(config),
        client,
        runtime: Arc::new(runtime),
        images: Arc::new(images),
        clock,
        random: Arc::new(Random::seeded(7)),
    });
    (node.clone(), tokio::spawn(node.run()))
}

fn condition<'a>(node: &'a Tree, kind: &str) -> &'a Tree {
    let conditions = node.list("status.conditions");
    conditions.iter().find(|condition| condition.str("type") == kind).unwrap_or(&Tree::Null)
}

async fn until_event(client: &Client, reason: &'static str) -> Tree {
    let is_expected = move |event: &&Tree| event.str("reason") == reason && event.str("involvedObject.name") == "n1";
    let events = client
        .until("/api/v1/namespaces/default/events", move |_, list| {
            list.list("items").iter().any(|event| is_expected(&event))
        })
        .await;
    events.list("items").iter().find(is_expected).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_registers_leases_and_reports() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let (node, task) = start(&cluster, config());
    let created = client.until(NODE, |code, _| code == 200).await;
    assert_eq!(created.map("metadata.labels").str("disk"), "fast");
    let taints: Vec<&str> = created.list("spec.taints").iter().map(|taint| taint.str("key")).collect();
    assert_eq!(taints, ["dedicated", "node.kubernetes.io/not-ready"]);
    assert_eq!(condition(&created, "Ready").str("reason"), "KubeletNotReady");
    assert_eq!(condition(&created, "MemoryPressure").str("status"), "False");
    assert_eq!(created.list("status.addresses")[1].str("address"), "host-1");
    assert_eq!(created.str("status.nodeInfo.kubeletVersion"), api::version::git_version());

    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let lease = client.until(path, |code, _| code == 200).await;
    assert_eq!((lease.str("spec.holderIdentity"), lease.int("spec.leaseDurationSeconds")), ("n1", Some(40)));

    let started = until_event(client, "Starting").await;
    assert_eq!((started.str("message"), started.str("source.host")), ("Starting kubelet.", "n1"));
    assert_eq!(until_event(client, "NodeHasSufficientMemory").await.str("type"), "Normal");

    client.patch(NODE, "merge", r#"{"spec":{"unschedulable":true}}"#).await;
    until_event(client, "NodeNotSchedulable").await;

    // The kubelet has checked its node since, and has written nothing: nothing had changed.
    let (version, beat) =
        (created.str("metadata.resourceVersion"), condition(&created, "Ready").str("lastHeartbeatTime"));
    let mut watch = client.watch(&format!("/api/v1/nodes?watch=true&resourceVersion={version}")).await;
    node.update_reports(|reports| reports.disk_pressure = true);
    let pressed = loop {
        let event = watch.next().await.expect("more events");
        let seen = event.at("object");
        if condition(seen, "DiskPressure").str("status") == "True" {
            break seen.clone();
        }
        assert_eq!(condition(seen, "Ready").str("lastHeartbeatTime"), beat, "another client has written it");
    };
    assert_eq!(condition(&pressed, "DiskPressure").str("message"), "kubelet has disk pressure");
    until_event(client, "NodeHasDiskPressure").await;

    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_nodes_are_taken_over() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let labels = tree! { "kubernetes.io/hostname" => "old", "disk" => "slow", "mine" => "x" };
    let reply =
        client.post("/api/v1/nodes", &tree! { "metadata" => tree! { "name" => "n1", "labels" => labels } }).await;
    assert_eq!(reply.code, 201, "{:?}", reply.tree());
    let (_, task) = start(&cluster, config());
    let taken = client.until(NODE, |_, node| !condition(node, "Ready").is_null()).await;
    let labels = taken.map("metadata.labels");
    assert_eq!((labels.str("kubernetes.io/hostname"), labels.str("disk"), labels.str("mine")), ("host-1", "slow", "x"));
    assert_eq!(taken.map("status.capacity").str("pods"), "110");

    // A controller that marks it as lost is corrected.
    let unknown = r#"{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}"#;
    let reply = client.patch(&format!("{NODE}/status"), "strategic-merge", unknown).await;
    assert_eq!(reply.code, 200);
    client.until(NODE, |_, node| condition(node, "Ready").str("reason") == "KubeletNotReady").await;
    task.abort();
}
