//! Nodes that register, become unreachable and are deleted, and the deletion of namespaces.

use std::time::Duration;

use api::{Tree, tree};
use testkit::Cluster;

use super::{Transcript, holds};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn taints(node: &Tree) -> usize {
    node.list("spec.taints").len()
}

/// A second healthy node: a zone without healthy nodes gets no evictions.
fn keep_alive(client: testkit::Client) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let node = tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => tree! { "name" => "other" } };
        client.post(NODES, &node).await;
        for beat in 1_700_000_000.. {
            let time = api::time::format_seconds(beat);
            let ready = format!(r#"{{"type":"Ready","status":"True","lastHeartbeatTime":"{time}"}}"#);
            let status = format!(r#"{{"status":{{"conditions":[{ready}]}}}}"#);
            client.patch(&format!("{NODES}/other/status"), "strategic-merge", &status).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn node_matches_upstream() {
    let mut cluster = Cluster::start_whole_with(|options| {
        // Much longer than the pause between heartbeats: a busy machine must not lose the other node.
        options.node_monitor_grace_period = Duration::from_secs(6);
    })
    .await;
    let mut story = Transcript::new(&cluster.client);
    let other = keep_alive(cluster.client.clone());
    let path = format!("{NODES}/a");
    story.make(NODES, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#).await;
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"ok",
        "lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    story.patch(&format!("{path}/status"), ready).await;
    let welcome = story
        .see(&path, |node| {
            taints(node) == 0 && node.map("metadata.annotations").str("node.alpha.kubernetes.io/ttl") == "0"
        })
        .await;
    story.tell("ready", &[welcome], &["metadata", "spec"]);
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
        "spec":{"nodeName":"a","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#;
    story.see("/api/v1/namespaces/default/serviceaccounts/default", |account| !account.has("code")).await;
    story.make(PODS, pod).await;
    let running = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    story.patch(&format!("{PODS}/p/status"), running).await;
    let lost = story.see(&path, |node| taints(node) == 2 && node.list("status.conditions").len() == 4).await;
    story.tell("silent", &[lost], &["spec", "status"]);
    let pod = story.see(&format!("{PODS}/p"), |pod| holds(pod, "Ready", "False")).await;
    story.tell("its pod", &[pod], &["status"]);
    story.patch(&path, r#"{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}"#).await;
    let evicted = story
        .see(&format!("{PODS}/p"), |pod| {
            pod.at("metadata").has("deletionTimestamp") && holds(pod, "DisruptionTarget", "True")
        })
        .await;
    story.tell("tainted away", &[evicted], &["metadata", "status"]);
    story.until_event("p", "TaintManagerEviction").await;
    assert_eq!(cluster.client.delete(&path).await.code, 200);
    for reason in ["RegisteredNode", "NodeNotReady", "RemovingNode"] {
        story.until_event("a", reason).await;
    }
    story.until_event("p", "NodeNotReady").await;
    story.tell_events(&["a", "p"]).await;
    other.abort();
    story.compare("node.yaml");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_matches_upstream() {
    let mut cluster = Cluster::start_whole().await;
    let mut story = Transcript::new(&cluster.client);
    let path = "/api/v1/namespaces/bye";
    story.make("/api/v1/namespaces", r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bye"}}"#).await;
    let account = story.see(&format!("{path}/serviceaccounts/default"), |account| !account.has("code")).await;
    story.tell("its account", &[account], &["metadata"]);
    let ca = story.see(&format!("{path}/configmaps/kube-root-ca.crt"), |map| !map.has("code")).await;
    story.tell("its CA", &[ca], &["metadata"]);
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hold","finalizers":["e.com/hold"]}}"#;
    story.make(&format!("{path}/configmaps"), map).await;
    let fresh = cluster.client.get(path).await.tree();
    story.tell("active", &[fresh], &[]);
    assert_eq!(cluster.client.delete(path).await.code, 200);
    let stuck = story.see(path, |namespace| holds(namespace, "NamespaceFinalizersRemaining", "True")).await;
    story.tell("stuck", &[stuck], &[]);
    story.patch(&format!("{path}/configmaps/hold"), r#"{"metadata":{"finalizers":null}}"#).await;
    story.see(path, |namespace| namespace.int("code") == Some(404)).await;
    story.compare("namespace.yaml");
    cluster.stop().await;
}
