//! Custom resources: from their definition to their objects, through restarts and changes of the definition.

/// Runs each test on both engines.
macro_rules! on_engines {
    ($($test:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(testkit::Storage::Embedded).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(testkit::Storage::Etcd).await;
            })*
        }
    };
}

mod conversion;
mod deadlines;
mod definitions;
mod machinery;
mod migration;

use api::{Tree, json};
use testkit::{Client, Cluster, Storage};

on_engines![
    objects_follow_their_schema,
    all_verbs_work,
    definitions_and_objects_survive_a_restart,
    discovery_and_openapi_are_live
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/stable.example.com/v1/namespaces/default/widgets";

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).expect("valid JSON")
}

/// A definition of Widgets with this schema of the specification.
fn definition(spec: &str) -> Tree {
    read(&format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
            "metadata":{{"name":"widgets.stable.example.com"}},
            "spec":{{"group":"stable.example.com","scope":"Namespaced",
                "names":{{"plural":"widgets","kind":"Widget","shortNames":["wd"],"categories":["all"]}},
                "versions":[{{"name":"v1","served":true,"storage":true,
                    "subresources":{{"status":{{}},"scale":{{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}}},
                    "additionalPrinterColumns":[{{"name":"Size","type":"string","jsonPath":".spec.size"}}],
                    "selectableFields":[{{"jsonPath":".spec.size"}}],
                    "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
                        "spec":{spec},
                        "status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}]}}}}"#
    ))
}

const SPEC: &str = r#"{"type":"object","required":["size"],"properties":{
    "size":{"type":"string","enum":["small","large"]},
    "replicas":{"type":"integer","minimum":0,"maximum":10,"default":1},
    "ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port"],
        "items":{"type":"object","required":["port"],"properties":{"port":{"type":"integer"},"name":{"type":"string"}}}}},
    "x-kubernetes-validations":[{"rule":"self.size != 'large' || self.replicas >= 2","message":"large needs two"}]}"#;

fn widget(name: &str, spec: &str) -> Tree {
    read(&format!(
        r#"{{"apiVersion":"stable.example.com/v1","kind":"Widget","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    ))
}

async fn define(client: &Client, definition: &Tree) {
    let reply = client.post(DEFINITIONS, definition).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
    let path = format!("{DEFINITIONS}/{}", definition.str("metadata.name"));
    client.until(&path, |_, object| is_true(object, "Established")).await;
}

fn is_true(object: &Tree, name: &str) -> bool {
    let conditions = object.list("status.conditions");
    conditions.iter().any(|condition| condition.str("type") == name && condition.str("status") == "True")
}

async fn objects_follow_their_schema(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let created = client.post(WIDGETS, &widget("a", r#"{"size":"small","unknown":1}"#)).await;
    assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    assert_eq!(created.tree().at("spec"), &read(r#"{"replicas":1,"size":"small"}"#), "pruned and defaulted");
    let warning = created.headers.get("warning").and_then(|value| value.to_str().ok());
    assert_eq!(warning, Some(r#"299 - "unknown field \"spec.unknown\"""#));
    for (spec, message) in [
        (r#"{"size":"medium"}"#, r#"spec.size: Unsupported value: "medium": supported values: "small", "large""#),
        (r#"{"size":"large"}"#, "spec: Invalid value: large needs two"),
        (
            r#"{"size":"small","replicas":11}"#,
            "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10",
        ),
        (r#"{"size":"small","ports":[{"port":1},{"port":1}]}"#, r#"spec.ports[1]: Duplicate value: {"port":1}"#),
    ] {
        let refused = client.post(WIDGETS, &widget("b", spec)).await;
        assert_eq!(refused.code, 422, "{spec}");
        assert!(refused.tree().str("message").contains(message), "{}", refused.tree().str("message"));
    }
    let protobuf =
        client.raw("POST", WIDGETS, &[("content-type", "application/vnd.kubernetes.protobuf")], vec![1]).await;
    assert_eq!(protobuf.code, 415);
    let accept = [("accept", "application/vnd.kubernetes.protobuf")];
    let refused = client.raw("GET", &format!("{WIDGETS}/a"), &accept, Vec::new()).await;
    assert_eq!(refused.code, 406);
    cluster.stop().await;
}

async fn all_verbs_work(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let mut watch = client.watch(&format!("{WIDGETS}?watch=true")).await;
    let path = format!("{WIDGETS}/a");
    assert_eq!(client.post(WIDGETS, &widget("a", r#"{"size":"small"}"#)).await.code, 201);
    let patched = client.patch(&path, "merge", r#"{"spec":{"replicas":3}}"#).await;
    assert_eq!(patched.tree().int("metadata.generation"), Some(2));
    let scale = client.get(&format!("{path}/scale")).await;
    assert_eq!(scale.tree().int("spec.replicas"), Some(3));
    let refused = client.delete(&format!("{path}/scale")).await;
    let message = r#"delete is not supported on resources of kind "widgets.stable.example.com""#;
    assert_eq!((refused.code, refused.tree().str("message")), (405, message));
    let status = r#"{"status":{"replicas":2},"spec":{"replicas":9}}"#;
    let patched = client.patch(&format!("{path}/status"), "merge", status).await.tree();
    assert_eq!((patched.int("status.replicas"), patched.int("spec.replicas")), (Some(2), Some(3)));
    assert_eq!(patched.int("metadata.generation"), Some(2), "the status has no generation");
    let apply = r#"{"apiVersion":"stable.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"ports":[{"port":1,"name":"x"}]}}"#;
    let applied = client.patch(&format!("{path}?fieldManager=m"), "apply", apply).await;
    assert_eq!(applied.code, 200, "{}", applied.tree().str("message"));
    let managers = applied.tree();
    let owner = managers.list("metadata.managedFields").iter().find(|entry| entry.str("manager") == "m");
    assert!(owner.is_some_and(|entry| entry.at("fieldsV1.f:spec.f:ports").get(r#"k:{"port":1}"#).is_some()));
    let selected = client.get(&format!("{WIDGETS}?fieldSelector=spec.size%3Dlarge")).await;
    assert!(selected.tree().list("items").is_empty());
    let headers = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = client.raw("GET", WIDGETS, &headers, Vec::new()).await.tree();
    assert_eq!(table.list("rows")[0].list("cells")[1].as_str(), Some("small"));
    let strategic = client.patch(&path, "strategic-merge", "{}").await;
    assert_eq!(strategic.code, 415);
    assert_eq!(client.delete(&path).await.code, 200);
    let (mut events, mut revisions) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let event = watch.next().await.expect("an event");
        events.push(event.str("type").to_string());
        revisions.push(event.str("object.metadata.resourceVersion").parse::<u64>().expect("a number"));
    }
    assert!(revisions.is_sorted_by(|a, b| a < b), "a deletion has a revision of its own: {revisions:?}");
    assert_eq!(events, ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]);
    cluster.stop().await;
}

async fn definitions_and_objects_survive_a_restart(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    define(&cluster.client, &definition(SPEC)).await;
    assert_eq!(cluster.client.post(WIDGETS, &widget("a", r#"{"size":"small"}"#)).await.code, 201);
    cluster.restart().await;
    let found = cluster.client.get(&format!("{WIDGETS}/a")).await;
    assert_eq!((found.code, found.tree().str("spec.size").to_string()), (200, "small".to_string()));
    let refused = cluster.client.post(WIDGETS, &widget("b", r#"{"size":"medium"}"#)).await;
    assert_eq!(refused.code, 422, "the schema is compiled again");
    cluster.stop().await;
}

async fn discovery_and_openapi_are_live(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    assert_eq!(client.get("/apis/stable.example.com").await.code, 404);
    let before = client.get("/openapi/v3").await.tree();
    define(client, &definition(SPEC)).await;
    let resources = client.get("/apis/stable.example.com/v1").await.tree();
    let names: Vec<&str> = resources.list("resources").iter().map(|resource| resource.str("name")).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let index = client.get("/openapi/v3").await.tree();
    let url = index.map("paths").get("apis/stable.example.com/v1").expect("a document").str("serverRelativeURL");
    assert_eq!(index.map("paths").get("apis/apps/v1"), before.map("paths").get("apis/apps/v1"), "others stay");
    let document = client.get(url).await.tree();
    let schema = document.at("components.schemas").get("com.example.stable.v1.Widget").expect("a schema");
    assert_eq!(schema.at("properties.spec.properties.size").str("type"), "string");
    let v2 = client.get("/openapi/v2").await;
    let etag = v2.headers.get("etag").and_then(|value| value.to_str().ok()).unwrap_or_default().to_string();
    let widget = |document: &Tree| document.map("definitions").get("com.example.stable.v1.Widget").cloned();
    assert_eq!(widget(&v2.tree()).expect("a definition").at("properties.spec.properties.size").str("type"), "string");
    assert!(v2.tree().map("definitions").contains("io.k8s.api.apps.v1.Deployment"));
    let unchanged = client.raw("GET", "/openapi/v2", &[("if-none-match", &etag)], Vec::new()).await;
    assert_eq!(unchanged.code, 304);
    let path = format!("{DEFINITIONS}/widgets.stable.example.com");
    let patch = r#"[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"changed"}]"#;
    assert_eq!(client.patch(&path, "json", patch).await.code, 200);
    let changed = client.get("/openapi/v3").await.tree();
    assert_ne!(
        changed.map("paths").get("apis/stable.example.com/v1"),
        index.map("paths").get("apis/stable.example.com/v1")
    );
    let changed = client.raw("GET", "/openapi/v2", &[("if-none-match", &etag)], Vec::new()).await;
    assert_eq!((changed.code, widget(&changed.tree()).expect("a definition").str("description")), (200, "changed"));
    assert_eq!(client.delete(&path).await.code, 200);
    client.until("/apis/stable.example.com", |code, _| code == 404).await;
    assert!(widget(&client.get("/openapi/v2").await.tree()).is_none());
    cluster.stop().await;
}
