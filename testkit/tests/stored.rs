//! The contents of the store: upstream's layout in etcd, values that upstream wrote, and events that expire.

use std::time::Duration;

use api::{Tree, protobuf, schema, tree};
use testkit::client::DEADLINE;
use testkit::{Cluster, Storage};

fn object(api_version: &str, kind: &str, name: &str) -> Tree {
    tree! { "apiVersion" => api_version, "kind" => kind, "metadata" => tree! { "name" => name } }
}

/// A value as upstream keeps it: protobuf, without a resourceVersion.
#[tokio::test(flavor = "multi_thread")]
async fn protobuf_of_another_server_is_read() {
    let mut stored = object("v1", "ConfigMap", "theirs");
    let meta = stored.child("metadata");
    meta.set("namespace", "default");
    meta.set("uid", "0a94e6f2-0d5b-4944-b7e9-0abc407611fd");
    meta.set("creationTimestamp", "2026-01-02T03:04:05Z");
    stored.set("data", tree! { "a" => "1" });
    let bytes = protobuf::encode(&stored, schema::type_of("", "v1", "ConfigMap").expect("in the table"));
    let config = server::Config::default();
    let mut cluster = Cluster::start_with(Storage::Etcd, config, async |etcd| {
        etcd.put("/registry/configmaps/default/theirs", &bytes).await;
    })
    .await;
    let path = "/api/v1/namespaces/default/configmaps/theirs";
    let read = cluster.client.get(path).await.tree();
    assert_eq!(read.str("data.a"), "1");
    assert!(read.str("metadata.resourceVersion").parse::<u64>().is_ok_and(|version| version > 0));
    assert_eq!(cluster.client.patch(path, "merge", r#"{"data":{"a":"2"}}"#).await.code, 200);
    assert_eq!(cluster.client.get(path).await.tree().str("data.a"), "2");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_keys_match_upstream() {
    let mut cluster = Cluster::start(Storage::Etcd).await;
    cluster.client.post("/api/v1/nodes", &object("v1", "Node", "n")).await;
    cluster.client.post("/api/v1/namespaces/default/configmaps", &object("v1", "ConfigMap", "c")).await;
    let etcd = cluster.etcd.as_ref().expect("an etcd");
    for key in [
        "/registry/minions/n",
        "/registry/configmaps/default/c",
        "/registry/namespaces/kube-system",
        "/registry/services/specs/default/kubernetes",
        "/registry/apiregistration.k8s.io/apiservices/v1.apps",
    ] {
        assert_eq!(etcd.keys(key).await.first().map(String::as_str), Some(key));
    }
    cluster.stop().await;
}

async fn events_expire(kept: Storage) {
    let config = server::Config { event_ttl: Duration::from_secs(2), ..server::Config::default() };
    let mut cluster = Cluster::start_with(kept, config, async |_| {}).await;
    let mut event = object("v1", "Event", "e");
    event.set("involvedObject", tree! { "namespace" => "default" });
    let path = "/api/v1/namespaces/default/events";
    assert_eq!(cluster.client.post(path, &event).await.code, 201);
    let mut watch = cluster.client.watch(&format!("{path}?watch=1")).await;
    let seen = tokio::time::timeout(DEADLINE, watch.names(2)).await.expect("it expires in time");
    assert_eq!(seen, ["ADDED e", "DELETED e"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_expire_in_the_embedded_store() {
    events_expire(Storage::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_expire_in_etcd() {
    events_expire(Storage::Etcd).await;
}
