//! Owners and dependents.

use api::Tree;
use testkit::Cluster;

use super::{MAPS, is_gone, map, until_gone};
use crate::until;

async fn delete(cluster: &Cluster, path: &str, policy: &str) {
    let reply = cluster.client.delete(&format!("{path}?propagationPolicy={policy}")).await;
    assert_eq!(reply.code, 200, "{:?}", reply.tree());
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_follow_their_owners() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let at = |name: &str| format!("{MAPS}/{name}");

    // In the background, over two steps.
    let owner = map(client, MAPS, "a", &[]).await;
    let child = map(client, MAPS, "a-child", &[&owner]).await;
    map(client, MAPS, "a-grandchild", &[&child]).await;
    delete(&cluster, &at("a"), "Background").await;
    until_gone(client, &at("a-child")).await;
    until_gone(client, &at("a-grandchild")).await;

    // Orphaned: nothing names the owner any more.
    let owner = map(client, MAPS, "b", &[]).await;
    map(client, MAPS, "b-child", &[&owner]).await;
    delete(&cluster, &at("b"), "Orphan").await;
    until_gone(client, &at("b")).await;
    let child = client.get(&at("b-child")).await.tree();
    assert!(child.list("metadata.ownerReferences").is_empty(), "{child:?}");

    // In the foreground: the owner waits for a dependent with a finalizer.
    let owner = map(client, MAPS, "c", &[]).await;
    map(client, MAPS, "c-child", &[&owner]).await;
    let hold = r#"{"metadata":{"finalizers":["e.com/hold"]}}"#;
    client.patch(&at("c-child"), "merge", hold).await;
    delete(&cluster, &at("c"), "Foreground").await;
    let is_deleted = async || client.get(&at("c-child")).await.tree().at("metadata").has("deletionTimestamp");
    until("the child is deleted", is_deleted).await;
    assert_eq!(client.get(&at("c")).await.tree().list("metadata.finalizers"), [Tree::from("foregroundDeletion")]);
    client.patch(&at("c-child"), "merge", r#"{"metadata":{"finalizers":null}}"#).await;
    until_gone(client, &at("c-child")).await;
    until_gone(client, &at("c")).await;

    // One of two owners goes: the other holds.
    let (one, two) = (map(client, MAPS, "d1", &[]).await, map(client, MAPS, "d2", &[]).await);
    map(client, MAPS, "d-child", &[&one, &two]).await;
    delete(&cluster, &at("d1"), "Background").await;
    until("only one owner is left", async || {
        client.get(&at("d-child")).await.tree().list("metadata.ownerReferences").len() == 1
    })
    .await;
    delete(&cluster, &at("d2"), "Foreground").await;
    until_gone(client, &at("d-child")).await;

    // A circle that waits for itself.
    let one = map(client, MAPS, "e1", &[]).await;
    map(client, MAPS, "e2", &[&one]).await;
    let two = client.get(&at("e2")).await.tree();
    let uid = two.str("metadata.uid");
    let reference = format!(
        r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"e2","uid":"{uid}","blockOwnerDeletion":true}}]}}}}"#
    );
    client.patch(&at("e1"), "merge", &reference).await;
    delete(&cluster, &at("e1"), "Foreground").await;
    until_gone(client, &at("e1")).await;
    until_gone(client, &at("e2")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_owners_do_not_block_deletion() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let at = |name: &str| format!("{MAPS}/{name}");
    let mut absent = map(client, MAPS, "absent", &[]).await;
    absent.child("metadata").set("uid", "0f8fad5b-d9cb-469f-a165-70867728950e");
    map(client, MAPS, "a", &[&absent]).await;
    until_gone(client, &at("a")).await;
    assert!(!is_gone(client, &at("absent")).await, "another one of that name is not meant");

    // An owner in another namespace does not count, and an event reports it.
    let owner = map(client, "/api/v1/namespaces/kube-public/configmaps", "far", &[]).await;
    map(client, MAPS, "b", &[&owner]).await;
    until_gone(client, &at("b")).await;
    let said = async || {
        let events = client.get("/api/v1/namespaces/default/events").await.tree();
        events.list("items").iter().any(|event| {
            event.str("reason") == "OwnerRefInvalidNamespace"
                && event.str("involvedObject.name") == "b"
                && event.str("message").ends_with("does not exist in namespace \"default\"")
        })
    };
    until("an event", said).await;
    cluster.stop().await;
}
