//! Claims that wait for their first consumer; only the test creates their volumes.

use super::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

async fn make_class(client: &Client) {
    let class = tree! {
        "metadata" => tree! { "name" => "slow" },
        "provisioner" => "example.com/slow", "volumeBindingMode" => "WaitForFirstConsumer",
    };
    assert_eq!(client.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.code, 201);
}

/// A pod that uses a claim of its own name.
async fn user(client: &Client, name: &str) -> String {
    let claim = tree! {
        "metadata" => tree! { "name" => name },
        "spec" => tree! {
            "storageClassName" => "slow", "accessModes" => list!["ReadWriteOnce"],
            "resources" => tree! { "requests" => tree! { "storage" => "1Gi" } },
        },
    };
    assert_eq!(client.post(CLAIMS, &claim).await.code, 201);
    let mut pod = pod(name, "1m");
    let volume = tree! { "name" => "v", "persistentVolumeClaim" => tree! { "claimName" => name } };
    pod.child("spec").set("volumes", list![volume]);
    create(client, &pod).await
}

fn selected(claim: &Tree) -> &str {
    let annotations = claim.map("metadata.annotations");
    annotations.get("volume.kubernetes.io/selected-node").and_then(Tree::as_str).unwrap_or("")
}

/// The actions of a provisioner and the binder.
async fn provision(client: &Client, name: &str) {
    let claim = client.until(&format!("{CLAIMS}/{name}"), |_, claim| !selected(claim).is_empty()).await;
    let reference = tree! { "namespace" => "default", "name" => name, "uid" => claim.str("metadata.uid") };
    let spec = tree! {
        "storageClassName" => "slow", "capacity" => tree! { "storage" => "1Gi" },
        "accessModes" => list!["ReadWriteOnce"], "claimRef" => reference,
        "csi" => tree! { "driver" => "example.com", "volumeHandle" => name },
    };
    let volume = tree! { "metadata" => tree! { "name" => format!("pv-{name}") }, "spec" => spec };
    assert_eq!(client.post("/api/v1/persistentvolumes", &volume).await.code, 201);
    let bound = format!(
        r#"{{"metadata":{{"annotations":{{"pv.kubernetes.io/bind-completed":"yes"}}}},"spec":{{"volumeName":"pv-{name}"}}}}"#
    );
    let reply = client.patch(&format!("{CLAIMS}/{name}"), "merge", &bound).await;
    assert_eq!(reply.code, 200, "{:?}", reply.tree());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_bound_after_their_volumes() {
    let cluster = start(&["default-scheduler"], &[("one", "4", "1000")]).await;
    let client = &cluster.client;
    make_class(client).await;
    let path = user(client, "a").await;
    let claim = client.until(&format!("{CLAIMS}/a"), |_, claim| !selected(claim).is_empty()).await;
    assert_eq!(selected(&claim), "one");
    assert!(!is_bound(200, &client.get(&path).await.tree()), "there is no volume yet");
    provision(client, "a").await;
    client.until(&path, is_bound).await;
    // A provisioner that cannot serve the node removes the selected node.
    let path = user(client, "b").await;
    client.until(&format!("{CLAIMS}/b"), |_, claim| !selected(claim).is_empty()).await;
    let back = r#"{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}"#;
    assert_eq!(client.patch(&format!("{CLAIMS}/b"), "merge", back).await.code, 200);
    let message = event(client, "b", "FailedScheduling").await;
    assert!(message.contains("is no longer to be provisioned for the selected node"), "{message}");
    provision(client, "b").await;
    client.until(&path, is_bound).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_waiting_for_volumes_block_no_other_pods() {
    let cluster = start(&["default-scheduler"], &[("one", "4", "1000")]).await;
    let client = &cluster.client;
    make_class(client).await;
    // More than the maximum number of concurrent bindings.
    let count = 260;
    for number in 0..count {
        user(client, &format!("v{number}")).await;
    }
    let last = format!("{CLAIMS}/v{}", count - 1);
    client.until(&last, |_, claim| !selected(claim).is_empty()).await;
    client.until(&create(client, &pod("free", "1m")).await, is_bound).await;
    // A pod that is deleted meanwhile releases its slot at once.
    assert_eq!(client.delete(&format!("{PODS}/v0?gracePeriodSeconds=0")).await.code, 200);
    provision(client, "v1").await;
    client.until(&format!("{PODS}/v1"), is_bound).await;
}
