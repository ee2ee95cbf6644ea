//! Nodes that register, become unreachable and are tainted, and their pods.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Tree, list, tree};
use client::{ResponseFuture, Transport};
use cluster::control_plane::in_process::LocalClients;
use testkit::{Client, Cluster, Storage};

use super::{events, until_gone};
use crate::until;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn make_node(client: &Client, name: &str) {
    let node = tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => tree! { "name" => name } };
    assert_eq!(client.post(NODES, &node).await.code, 201);
    beat(client, name, "2026-01-01T00:00:00Z").await;
}

/// A sign of life.
async fn beat(client: &Client, name: &str, at: &str) {
    let status = format!(
        r#"{{"status":{{"conditions":[{{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":"{at}"}}]}}}}"#
    );
    assert_eq!(client.patch(&format!("{NODES}/{name}/status"), "strategic-merge", &status).await.code, 200);
}

async fn make_pod(client: &Client, name: &str, node: &str, tolerations: Tree) {
    let container = tree! { "name" => "c", "image" => "i" };
    let spec = tree! { "nodeName" => node, "containers" => list![container], "tolerations" => tolerations };
    let pod = tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => tree! { "name" => name }, "spec" => spec };
    until("a pod is made", async || client.post(PODS, &pod).await.code == 201).await;
}

async fn taints(client: &Client, node: &str) -> Vec<String> {
    let node = client.get(&format!("{NODES}/{node}")).await.tree();
    let text = |taint: &Tree| format!("{}:{}", taint.str("key"), taint.str("effect"));
    node.list("spec.taints").iter().map(text).collect()
}

/// A transport on which no watch of leases gets a response.
struct TransportWithoutLeaseWatches(Arc<dyn Transport>);

impl Transport for TransportWithoutLeaseWatches {
    fn send(&self, request: http::Request<bytes::Bytes>) -> ResponseFuture<'_> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        match is_watch && request.uri().path().ends_with("/leases") {
            true => Box::pin(std::future::pending()),
            false => self.0.send(request),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_lease_events_do_not_fail_a_node() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    make_node(client, "a").await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let metadata = tree! { "name" => "a", "namespace" => "kube-node-lease" };
    let lease = tree! { "apiVersion" => "coordination.k8s.io/v1", "kind" => "Lease", "metadata" => metadata };
    assert_eq!(client.post(leases, &lease).await.code, 201);
    let patience = Duration::from_millis(800);
    let options = controllers::Options { node_monitor_grace_period: patience, ..controllers::Options::default() };
    let deaf = LocalClients {
        around: Arc::new(|inner| Arc::new(TransportWithoutLeaseWatches(inner))),
        ..LocalClients::new(cluster.server())
    };
    let running = controllers::start(deaf.controllers(Arc::new(options)), &["node-lifecycle-controller".to_string()]);
    let running = running.expect("the controller starts");
    until("no taint is left", async || taints(client, "a").await.is_empty()).await;

    let begun = Instant::now();
    let lives = async || {
        let renewed =
            format!(r#"{{"spec":{{"renewTime":"2026-01-01T00:00:00.{:06}Z"}}}}"#, begun.elapsed().as_millis());
        assert_eq!(client.patch(&format!("{leases}/a"), "merge", &renewed).await.code, 200);
        assert_eq!(taints(client, "a").await, [] as [String; 0]);
        begun.elapsed() > 3 * patience
    };
    until("its time is up thrice", lives).await;
    let is_lost = async || taints(client, "a").await.iter().any(|taint| taint.contains("unreachable"));
    until("it is given up once its lease is old", is_lost).await;
    running.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_nodes_become_unknown() {
    let mut cluster = Cluster::start_whole_with(|options| {
        options.node_monitor_grace_period = Duration::from_millis(1500);
    })
    .await;
    let client = &cluster.client;
    for name in ["a", "b"] {
        make_node(client, name).await;
        until("no taint is left", async || taints(client, name).await.is_empty()).await;
    }
    let ttl = async || {
        client.get(&format!("{NODES}/a")).await.tree().map("metadata.annotations").str("node.alpha.kubernetes.io/ttl")
            == "0"
    };
    until("it knows how long to believe", ttl).await;
    make_pod(client, "p", "a", list![]).await;
    let ready = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    assert_eq!(client.patch(&format!("{PODS}/p/status"), "strategic-merge", ready).await.code, 200);

    // The other node is healthy.
    let lost = ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
    let seconds = std::sync::atomic::AtomicUsize::new(1);
    let is_lost = async || {
        let now = seconds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        beat(client, "b", &format!("2026-01-01T00:{:02}:{:02}Z", now / 60 % 60, now % 60)).await;
        taints(client, "a").await == lost
    };
    until("it is given up", is_lost).await;
    let node = client.get(&format!("{NODES}/a")).await.tree();
    let condition = &node.list("status.conditions")[0];
    let (status, reason) = (condition.str("status"), condition.str("reason"));
    assert_eq!((status, reason), ("Unknown", "NodeStatusUnknown"));
    assert_eq!(condition.str("message"), "Kubelet stopped posting node status.");
    assert_eq!(node.list("status.conditions")[1].str("reason"), "NodeStatusNeverUpdated");
    let is_unready = async || {
        let pod = client.get(&format!("{PODS}/p")).await.tree();
        pod.list("status.conditions").iter().any(|one| one.str("type") == "Ready" && one.str("status") == "False")
    };
    until("its pod is not ready", is_unready).await;
    until("the event is recorded", async || {
        let recorded = events(client, "default", "a").await;
        recorded.iter().any(|text| text == "NodeNotReady: Node a status is now: NodeNotReady")
            && recorded.iter().any(|text| text == "RegisteredNode: Node a event: Registered Node a in Controller")
    })
    .await;

    beat(client, "a", "2026-02-01T00:00:00Z").await;
    until("it is back", async || taints(client, "a").await.is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_a_tainted_node() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    make_node(client, "a").await;
    let toleration = |seconds: i64| {
        tree! { "key" => "x", "operator" => "Exists", "effect" => "NoExecute", "tolerationSeconds" => seconds }
    };
    make_pod(client, "now", "a", list![]).await;
    make_pod(client, "soon", "a", list![toleration(1)]).await;
    make_pod(client, "later", "a", list![toleration(3000)]).await;
    make_pod(client, "never", "a", list![tree! { "operator" => "Exists" }]).await;
    let taint = r#"{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}"#;
    assert_eq!(client.patch(&format!("{NODES}/a"), "merge", taint).await.code, 200);
    for name in ["now", "soon"] {
        let path = format!("{PODS}/{name}");
        until("the pod is deleted", async || client.get(&path).await.tree().at("metadata").has("deletionTimestamp"))
            .await;
        let pod = client.get(&path).await.tree();
        let condition = pod.list("status.conditions").iter().find(|one| one.str("type") == "DisruptionTarget");
        let condition = condition.expect("it says why");
        assert_eq!(condition.str("reason"), "DeletionByTaintManager");
        assert_eq!(condition.str("message"), "Taint manager: deleting due to NoExecute taint");
        until("the event is recorded", async || {
            let recorded = events(client, "default", name).await;
            recorded.contains(&format!("TaintManagerEviction: Marking for deletion Pod default/{name}"))
        })
        .await;
    }
    assert_eq!(client.patch(&format!("{NODES}/a"), "merge", r#"{"spec":{"taints":null}}"#).await.code, 200);
    until("it is called off", async || {
        let recorded = events(client, "default", "later").await;
        recorded.contains(&"TaintManagerEviction: Cancelling deletion of Pod default/later".to_string())
    })
    .await;
    for name in ["later", "never"] {
        assert!(!client.get(&format!("{PODS}/{name}")).await.tree().at("metadata").has("deletionTimestamp"), "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_their_ranges() {
    let mut cluster = Cluster::start_whole_with(|options| {
        options.allocate_node_cidrs = true;
        options.cluster_cidr = vec!["10.244.0.0/23".to_string(), "fd00:1::/56".to_string()];
    })
    .await;
    let client = &cluster.client;
    let ranges = async |name: &str| {
        let node = client.get(&format!("{NODES}/{name}")).await.tree();
        let texts = node.list("spec.podCIDRs").iter().filter_map(Tree::as_str).collect::<Vec<_>>().join(",");
        assert!(texts.is_empty() || texts.starts_with(node.str("spec.podCIDR")));
        texts
    };
    for (name, want) in [("a", "10.244.0.0/24,fd00:1::/64"), ("b", "10.244.1.0/24,fd00:1:0:1::/64")] {
        make_node(client, name).await;
        until("it has ranges", async || ranges(name).await == want).await;
    }
    make_node(client, "c").await;
    until("there are none left", async || {
        events(client, "default", "c")
            .await
            .contains(&"CIDRNotAvailable: Node c status is now: CIDRNotAvailable".to_string())
    })
    .await;
    assert_eq!(client.delete(&format!("{NODES}/a")).await.code, 200);
    until_gone(client, &format!("{NODES}/a")).await;
    until("they are given again", async || ranges("c").await.starts_with("10.244.0.0/24")).await;
    cluster.stop().await;
}
