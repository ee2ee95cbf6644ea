//! The deletion of a namespace.

use api::{Tree, list, tree};
use testkit::{Client, Cluster};

use super::{map, until_gone};
use crate::until;

async fn make(client: &Client, name: &str) {
    let namespace = tree! { "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => name } };
    assert_eq!(client.post("/api/v1/namespaces", &namespace).await.code, 201);
}

fn condition(namespace: &Tree, kind: &str) -> String {
    let conditions = namespace.list("status.conditions").iter().filter(|condition| condition.str("type") == kind);
    conditions.map(|one| format!("{} {}: {}", one.str("status"), one.str("reason"), one.str("message"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_report_what_blocks_deletion() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    make(client, "bye").await;
    let maps = "/api/v1/namespaces/bye/configmaps";
    map(client, maps, "hold", &[]).await;
    map(client, maps, "plain", &[]).await;
    client.patch(&format!("{maps}/hold"), "merge", r#"{"metadata":{"finalizers":["e.com/hold"]}}"#).await;
    assert_eq!(client.delete("/api/v1/namespaces/bye").await.code, 200);
    let remaining = async || {
        let namespace = client.get("/api/v1/namespaces/bye").await.tree();
        condition(&namespace, "NamespaceContentRemaining")
            == "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances"
    };
    until("the condition", remaining).await;
    let namespace = client.get("/api/v1/namespaces/bye").await.tree();
    assert_eq!(
        condition(&namespace, "NamespaceFinalizersRemaining"),
        "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: e.com/hold in 1 resource instances"
    );
    assert_eq!(
        condition(&namespace, "NamespaceDeletionContentFailure"),
        "False ContentDeleted: All content successfully deleted, may be waiting on finalization"
    );
    until_gone(client, &format!("{maps}/plain")).await;
    client.patch(&format!("{maps}/hold"), "merge", r#"{"metadata":{"finalizers":null}}"#).await;
    until_gone(client, "/api/v1/namespaces/bye").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_deleted_before_other_objects() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    make(client, "bye").await;
    let maps = "/api/v1/namespaces/bye/configmaps";
    let pods = "/api/v1/namespaces/bye/pods";
    map(client, maps, "settings", &[]).await;
    let spec = tree! { "containers" => list![tree! { "name" => "c", "image" => "i" }], "nodeName" => "n" };
    let pod = tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => tree! { "name" => "p" }, "spec" => spec };
    until("the account is there", async || client.post(pods, &pod).await.code == 201).await;
    client.delete("/api/v1/namespaces/bye").await;
    let is_told = async || {
        let namespace = client.get("/api/v1/namespaces/bye").await.tree();
        condition(&namespace, "NamespaceContentRemaining").ends_with("pods. has 1 resource instances")
    };
    until("the pod is waited for", is_told).await;
    assert_eq!(client.get(&format!("{maps}/settings")).await.code, 200, "it goes after the pod");
    assert_eq!(client.delete(&format!("{pods}/p?gracePeriodSeconds=0")).await.code, 200);
    until_gone(client, "/api/v1/namespaces/bye").await;
    cluster.stop().await;
}
