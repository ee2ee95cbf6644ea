//! Objects are rewritten in the version in which they are stored now.

use super::*;

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";

fn migration(name: &str, group: &str, resource: &str) -> Tree {
    read(&format!(
        r#"{{"apiVersion":"storagemigration.k8s.io/v1","kind":"StorageVersionMigration",
            "metadata":{{"name":"{name}"}},"spec":{{"resource":{{"group":"{group}","resource":"{resource}"}}}}}}"#
    ))
}

fn version(name: &str, storage: bool) -> String {
    format!(
        r#"{{"name":"{name}","served":true,"storage":{storage},"schema":{{"openAPIV3Schema":{{"type":"object",
            "x-kubernetes-preserve-unknown-fields":true}}}}}}"#
    )
}

fn stored_versions(definition: &Tree) -> Vec<&str> {
    definition.list("status.storedVersions").iter().filter_map(Tree::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_migrated_to_the_storage_version() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let mut widgets = definition(SPEC);
    let versions = |first: bool| read(&format!("[{},{}]", version("v1", first), version("v2", !first)));
    widgets.child("spec").set("versions", versions(true));
    define(client, &widgets).await;
    let created = client.post(WIDGETS, &widget("a", r#"{"size":"small"}"#)).await.tree();
    let path = format!("{DEFINITIONS}/widgets.stable.example.com");
    let patch = api::tree! { "spec" => api::tree! { "versions" => versions(false) } };
    let patch = String::from_utf8(json::encode(&patch, None)).expect("UTF-8");
    let patched = client.patch(&path, "merge", &patch).await.tree();
    assert_eq!(stored_versions(&patched), ["v1", "v2"]);

    let done = run(client, "widgets", "stable.example.com", "widgets").await;
    assert!(is_true(&done, "Succeeded"), "{done:?}");
    let after = client.get(&format!("{WIDGETS}/a")).await.tree();
    assert_ne!(after.str("metadata.resourceVersion"), created.str("metadata.resourceVersion"), "it was written again");
    assert_eq!(after.at("spec"), created.at("spec"));
    let is_migrated = |_: u16, definition: &Tree| stored_versions(definition) == ["v2"];
    let migrated = client.until(&path, is_migrated).await;
    let condition = migrated.list("status.conditions").iter().find(|one| one.str("type") == "StorageMigrating");
    let condition = condition.expect("a condition");
    assert_eq!((condition.str("status"), condition.str("reason")), ("False", "MigrationSucceeded"));
    let revision = after.str("metadata.resourceVersion").to_string();
    let again = run(client, "again", "stable.example.com", "widgets").await;
    assert!(is_true(&again, "Succeeded"));
    let same = client.get(&format!("{WIDGETS}/a")).await.tree();
    assert_eq!(same.str("metadata.resourceVersion"), revision, "it is stored in that version already");
    cluster.stop().await;
}

/// Creates a migration and waits until it is finished.
async fn run(client: &Client, name: &str, group: &str, resource: &str) -> Tree {
    let reply = client.post(MIGRATIONS, &migration(name, group, resource)).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
    let is_done = |_: u16, object: &Tree| {
        (is_true(object, "Succeeded") || is_true(object, "Failed")) && !is_true(object, "Running")
    };
    client.until(&format!("{MIGRATIONS}/{name}"), is_done).await
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_resources_are_migrated_too() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let done = run(client, "namespaces", "", "namespaces").await;
    assert!(is_true(&done, "Succeeded"), "{done:?}");
    let refused = run(client, "reviews", "authorization.k8s.io", "subjectaccessreviews").await;
    let failed = refused.list("status.conditions").iter().find(|one| one.str("type") == "Failed").expect("a condition");
    let message = r#"resource "authorization.k8s.io/v1, Resource=subjectaccessreviews" does not support discovery operations: [update patch list]"#;
    assert_eq!(failed.str("message"), message);
    cluster.stop().await;
}
