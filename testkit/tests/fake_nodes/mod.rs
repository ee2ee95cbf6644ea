//! Fake nodes, tested through the API. They act as nodes under the Node authorizer and NodeRestriction: a rejected
//! write fails here.

use std::time::Duration;

use api::{Tree, list, tree};
use testkit::{Client, Cluster};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, restart: &str, annotations: &[(&str, &str)]) -> Tree {
    let mut map = api::Map::new();
    annotations.iter().for_each(|(name, value)| drop(map.insert(format!("tiphys.io/fake-{name}"), *value)));
    tree! {
        "metadata" => tree! { "name" => name, "annotations" => map },
        "spec" => tree! {
            "restartPolicy" => restart,
            "initContainers" => list![tree! { "name" => "side", "image" => "i", "restartPolicy" => "Always" }],
            "containers" => list![tree! { "name" => "c", "image" => "i" }],
        },
    }
}

async fn ready(client: &Client) {
    let ready = |node: &Tree| {
        let conditions = node.list("status.conditions");
        conditions.iter().any(|condition| condition.str("type") == "Ready" && condition.str("status") == "True")
    };
    client.until("/api/v1/nodes", |_, list| list.list("items").iter().filter(|node| ready(node)).count() == 2).await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    client.until(account, |code, _| code == 200).await;
}

async fn create(client: &Client, pod: &Tree) -> String {
    let reply = client.post(PODS, pod).await;
    assert_eq!(reply.code, 201, "{:?}", reply.tree());
    format!("{PODS}/{}", pod.str("metadata.name"))
}

fn phase(want: &'static str) -> impl Fn(u16, &Tree) -> bool {
    move |_, pod| pod.str("status.phase") == want
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_stop_and_are_deleted() {
    let cluster = Cluster::start_with_nodes(2).await;
    let client = &cluster.client;
    ready(client).await;
    let lease = client.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/fake-1").await.tree();
    assert_eq!(lease.str("spec.holderIdentity"), "fake-1");

    let (a, b) = (create(client, &pod("a", "Always", &[])).await, create(client, &pod("b", "Always", &[])).await);
    let (first, second) = (client.until(&a, phase("Running")).await, client.until(&b, phase("Running")).await);
    assert_ne!(first.str("status.podIP"), second.str("status.podIP"));
    let is_ready = |condition: &Tree| condition.str("type") == "Ready" && condition.str("status") == "True";
    assert!(first.list("status.conditions").iter().any(is_ready), "{first:?}");
    assert!(first.list("status.containerStatuses")[0].bool("ready"));
    // Nothing more is written of a pod that only runs.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let later = client.get(&a).await.tree();
    assert_eq!(later.str("metadata.resourceVersion"), first.str("metadata.resourceVersion"));

    let ends = create(client, &pod("ends", "Never", &[("exit-code", "3")])).await;
    let ended = client.until(&ends, phase("Failed")).await;
    assert_eq!(ended.list("status.containerStatuses")[0].int("state.terminated.exitCode"), Some(3));
    let done = create(client, &pod("done", "OnFailure", &[("run-seconds", "1")])).await;
    client.until(&done, phase("Succeeded")).await;
    let again = create(client, &pod("again", "OnFailure", &[("exit-code", "1")])).await;
    client
        .until(&again, |_, pod| {
            let status = pod.list("status.containerStatuses");
            status.first().is_some_and(|status| status.int("restartCount") == Some(1))
        })
        .await;

    for path in [&a, &ends, &done, &again] {
        let reply = client.delete(path).await;
        assert!(matches!(reply.code, 200 | 202), "{path}: {} {}", reply.code, reply.tree().str("message"));
        client.until(path, |code, _| code == 404).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_selected_and_become_unreachable() {
    let cluster = Cluster::start_with_nodes(2).await;
    let client = &cluster.client;
    ready(client).await;
    let mut picky = pod("picky", "Always", &[]);
    picky.child("spec.nodeSelector").set("disk", "ssd");
    let picky = create(client, &picky).await;
    let unschedulable = |condition: &Tree| condition.str("reason") == "Unschedulable";
    client.until(&picky, |_, pod| pod.list("status.conditions").iter().any(unschedulable)).await;
    client.patch("/api/v1/nodes/fake-1", "merge", r#"{"metadata":{"labels":{"disk":"ssd"}}}"#).await;
    let pod_there = client.until(&picky, phase("Running")).await;
    assert_eq!(pod_there.str("spec.nodeName"), "fake-1");

    // A lost node is not known at once; that it accepts no more pods is.
    let down = r#"{"metadata":{"annotations":{"tiphys.io/fake-down":"true"}},"spec":{"unschedulable":true}}"#;
    assert_eq!(client.patch("/api/v1/nodes/fake-1", "merge", down).await.code, 200);
    for name in ["c", "d", "e"] {
        let path = create(client, &pod(name, "Always", &[])).await;
        let pod = client.until(&path, phase("Running")).await;
        assert_eq!(pod.str("spec.nodeName"), "fake-0", "the other one takes none");
    }
    client.delete(&picky).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.get(&picky).await.code, 200, "no node completes the deletion");
    let up = r#"{"metadata":{"annotations":{"tiphys.io/fake-down":null}}}"#;
    client.patch("/api/v1/nodes/fake-1", "merge", up).await;
    client.until(&picky, |code, _| code == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_and_their_pods_have_logs() {
    let cluster = Cluster::start_with_nodes(2).await;
    let client = &cluster.client;
    ready(client).await;
    let template = tree! {
        "metadata" => tree! { "annotations" => tree! { "tiphys.io/fake-log" => "migrated" } },
        "spec" => tree! {
            "restartPolicy" => "Never",
            "containers" => list![tree! { "name" => "c", "image" => "i" }],
        },
    };
    let job = tree! { "metadata" => tree! { "name" => "hook" }, "spec" => tree! { "template" => template } };
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    assert_eq!(client.post(jobs, &job).await.code, 201);
    client.until(&format!("{jobs}/hook"), |_, job| job.int("status.succeeded") == Some(1)).await;
    let pods = client.get(&format!("{PODS}?labelSelector=job-name%3Dhook")).await.tree();
    let name = pods.list("items")[0].str("metadata.name").to_string();
    let reply = client.get(&format!("{PODS}/{name}/log?tailLines=2")).await;
    let text = reply.text();
    assert_eq!((reply.code, text.as_str()), (200, "migrated\ncontainer c ended with exit code 0\n"));
    assert_eq!(client.get(&format!("{PODS}/{name}/log?previous=true")).await.code, 400);
}
