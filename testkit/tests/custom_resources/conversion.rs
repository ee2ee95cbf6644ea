//! Several versions, without a webhook and with a webhook of the test.

use api::{list, tree};
use testkit::{Hook, HookResponse};

use super::*;
use crate::webhooks::own_address;

on_engines![
    webhooks_convert_reads_and_writes,
    webhooks_behind_services_convert_watches,
    without_a_webhook_only_the_version_changes
];

const CONVS: &str = "/apis/conv.example.com";

/// `v1` has `hostPort`, `v2` has `host` and `port`.
fn two_versions(conversion: Tree) -> Tree {
    let version = |name: &str, storage: bool, fields: &[&str]| {
        let mut spec = tree! { "type" => "object" };
        for field in fields {
            spec.child("properties").set(field, tree! { "type" => "string" });
        }
        let schema = tree! { "type" => "object", "properties" => tree! { "spec" => spec } };
        tree! {
            "name" => name, "served" => true, "storage" => storage,
            "schema" => tree! { "openAPIV3Schema" => schema },
        }
    };
    tree! {
        "apiVersion" => "apiextensions.k8s.io/v1", "kind" => "CustomResourceDefinition",
        "metadata" => tree! { "name" => "convs.conv.example.com" },
        "spec" => tree! {
            "group" => "conv.example.com", "scope" => "Namespaced", "conversion" => conversion,
            "names" => tree! { "plural" => "convs", "kind" => "Conv" },
            "versions" => list![version("v1", true, &["hostPort"]), version("v2", false, &["host", "port"])],
        },
    }
}

fn convert(review: &Tree) -> HookResponse {
    let to = review.str("request.desiredAPIVersion");
    let one = |object: &Tree| {
        let mut object = object.clone();
        object.set("apiVersion", to);
        let spec = object.child("spec");
        if to.ends_with("/v2") {
            let joined = spec.str("hostPort").to_string();
            let (host, port) = joined.split_once(':').unwrap_or((&joined, ""));
            *spec = tree! { "host" => host, "port" => port };
        } else {
            *spec = tree! { "hostPort" => format!("{}:{}", spec.str("host"), spec.str("port")) };
        }
        object
    };
    let objects: Vec<Tree> = review.list("request.objects").iter().map(one).collect();
    HookResponse::Json(tree! {
        "apiVersion" => review.str("apiVersion"), "kind" => "ConversionReview",
        "response" => tree! {
            "uid" => review.str("request.uid"), "result" => tree! { "status" => "Success" },
            "convertedObjects" => objects,
        },
    })
}

fn conv(version: &str, name: &str, spec: Tree) -> Tree {
    tree! {
        "apiVersion" => format!("conv.example.com/{version}"), "kind" => "Conv",
        "metadata" => tree! { "name" => name }, "spec" => spec,
    }
}

async fn webhooks_convert_reads_and_writes(storage: Storage) {
    let hook = Hook::start(&[], |path, review| match path {
        "/fail" => HookResponse::Text(500, "broken".to_string()),
        _ => convert(review),
    })
    .await;
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    let webhook = |path: &str| {
        tree! {
            "strategy" => "Webhook",
            "webhook" => tree! { "conversionReviewVersions" => list!["v1"], "clientConfig" => hook.by_url(path) },
        }
    };
    define(client, &two_versions(webhook("/convert"))).await;
    let (v1, v2) = (format!("{CONVS}/v1/namespaces/default/convs"), format!("{CONVS}/v2/namespaces/default/convs"));
    let created = client.post(&v1, &conv("v1", "a", tree! { "hostPort" => "h:1" })).await;
    assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    assert!(hook.asked().is_empty(), "it is stored as it is");
    let found = client.get(&format!("{v2}/a")).await.tree();
    assert_eq!(
        (found.str("apiVersion"), found.str("spec.host"), found.str("spec.port")),
        ("conv.example.com/v2", "h", "1")
    );
    let created = client.post(&v2, &conv("v2", "b", tree! { "host" => "i", "port" => "2" })).await;
    assert_eq!((created.code, created.tree().str("spec.host")), (201, "i"), "{}", created.tree().str("message"));
    assert_eq!(client.get(&format!("{v1}/b")).await.tree().str("spec.hostPort"), "i:2");
    let before = hook.asked().len();
    assert_eq!(client.get(&v2).await.tree().list("items").len(), 2);
    assert_eq!(hook.asked().len(), before + 1, "a list is converted at once");
    let patched = client.patch(&format!("{v2}/a"), "merge", r#"{"spec":{"port":"9"}}"#).await;
    assert_eq!(patched.tree().str("spec.port"), "9");
    assert_eq!(client.get(&format!("{v1}/a")).await.tree().str("spec.hostPort"), "h:9");
    let managers = client.get(&format!("{v1}/a")).await.tree();
    assert_eq!(managers.list("metadata.managedFields").len(), 2, "managers of both versions");

    let path = format!("{DEFINITIONS}/convs.conv.example.com");
    let change = tree! { "spec" => tree! { "conversion" => webhook("/fail") } };
    let change = String::from_utf8(json::encode(&change, None)).expect("UTF-8");
    assert_eq!(client.patch(&path, "merge", &change).await.code, 200);
    let failed = client.get(&format!("{v2}/a")).await;
    assert_eq!(failed.code, 500);
    let message = failed.tree().str("message").to_string();
    assert!(message.contains("conversion webhook for conv.example.com/v1, Kind=Conv failed"), "{message}");
    assert_eq!(client.get(&format!("{v1}/a")).await.code, 200, "the stored version needs no webhook");
    let watch = client.get(&format!("{v2}?watch=true")).await;
    assert_eq!(watch.code, 429, "a watch that cannot begin is refused");
    assert!(watch.tree().str("message").starts_with("storage is (re)initializing: "));
    cluster.stop().await;
}

async fn webhooks_behind_services_convert_watches(storage: Storage) {
    let hook = Hook::start(&["converter.default.svc"], |_, review| convert(review)).await;
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    let ports = || list![tree! { "name" => "https", "port" => 443 }];
    let service = tree! { "metadata" => tree! { "name" => "converter" }, "spec" => tree! { "ports" => ports() } };
    assert_eq!(client.post("/api/v1/namespaces/default/services", &service).await.code, 201);
    let slice = tree! {
        "metadata" => tree! {
            "name" => "converter", "labels" => tree! { "kubernetes.io/service-name" => "converter" },
        },
        "addressType" => "IPv4",
        "endpoints" => list![tree! { "addresses" => list![own_address().to_string()] }],
        "ports" => list![tree! { "name" => "https", "port" => i64::from(hook.address.port()) }],
    };
    let reply = client.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
    let config = tree! {
        "service" => tree! { "namespace" => "default", "name" => "converter", "path" => "/convert" },
        "caBundle" => &hook.ca_bundle,
    };
    let webhook = tree! { "conversionReviewVersions" => list!["v1"], "clientConfig" => config };
    define(client, &two_versions(tree! { "strategy" => "Webhook", "webhook" => webhook })).await;
    let (v1, v2) = (format!("{CONVS}/v1/namespaces/default/convs"), format!("{CONVS}/v2/namespaces/default/convs"));
    let mut watch = client.watch(&format!("{v2}?watch=true")).await;
    assert_eq!(client.post(&v1, &conv("v1", "a", tree! { "hostPort" => "h:1" })).await.code, 201);
    assert_eq!(client.delete(&format!("{v1}/a")).await.code, 200);
    for ty in ["ADDED", "DELETED"] {
        let event = watch.next().await.expect("an event");
        let object = event.at("object");
        assert_eq!((event.str("type"), object.str("apiVersion")), (ty, "conv.example.com/v2"));
        assert_eq!(object.at("spec"), &tree! { "host" => "h", "port" => "1" });
    }
    cluster.stop().await;
}

async fn without_a_webhook_only_the_version_changes(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &two_versions(tree! { "strategy" => "None" })).await;
    let v1 = format!("{CONVS}/v1/namespaces/default/convs");
    assert_eq!(client.post(&v1, &conv("v1", "a", tree! { "hostPort" => "h:1" })).await.code, 201);
    let found = client.get(&format!("{CONVS}/v2/namespaces/default/convs/a")).await.tree();
    assert_eq!((found.str("apiVersion"), found.at("spec")), ("conv.example.com/v2", &tree! {}), "pruned by its schema");
    let second = format!("{CONVS}/v2/namespaces/default/convs/a");
    let patched = client.patch(&second, "merge", r#"{"spec":{"host":"y"}}"#).await;
    assert_eq!((patched.code, patched.tree().at("spec")), (200, &tree! {}), "the stored version has no such field");
    assert_eq!(patched.tree().list("metadata.managedFields").len(), 1, "so that nothing can own it");
    for (version, unknown) in [("v2", "spec.hostPort"), ("v9", "spec")] {
        let refused = client.post(&v1, &conv(version, "b", tree! { "hostPort" => "h:1" })).await;
        let warning = refused.headers.get("warning").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let want = format!(r#"299 - "unknown field \"{unknown}\"""#);
        assert_eq!((refused.code, warning), (400, want.as_str()), "by the schema of {version}");
    }
    cluster.stop().await;
}
