//! Dynamic resource allocation: claims, the devices that they get, and what happens when devices or pods change.

use std::sync::Arc;

use api::json::decode;
use api::{Tree, list, tree};
use cluster::control_plane::Controllers;
use scheduler::config::Configuration;
use testkit::{Client, Cluster};

use super::{NODES, PODS, add_node, condition, create, is_bound, pod};

const GROUP: &str = "/apis/resource.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";

async fn post(client: &Client, path: &str, json: &str) -> Tree {
    let object = decode(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"));
    let reply = client.post(path, &object).await;
    assert_eq!(reply.code, 201, "{path}: {:?}", reply.tree());
    reply.tree()
}

/// Two nodes, of which `a` has two devices and `b` one, with the controllers of claims.
async fn devices() -> Cluster {
    let cluster = Cluster::start_changed(|plan, _| {
        plan.scheduler = Some(Configuration::default());
        let chosen = ["resourceclaim-controller", "device-taint-eviction-controller"].map(String::from).to_vec();
        plan.controllers = Some(Controllers { chosen, options: Arc::default() });
    })
    .await;
    let client = &cluster.client;
    let account = tree! { "metadata" => tree! { "name" => "default" } };
    let created = client.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    assert!(matches!(created.code, 201 | 409), "{:?}", created.tree());
    for (node, devices) in [("a", r#"[{"name":"d0"},{"name":"d1"}]"#), ("b", r#"[{"name":"d0"}]"#)] {
        add_node(client, node, "4", "10").await;
        post(client, &format!("{GROUP}/resourceslices"), &slice(node, devices)).await;
    }
    let class = r#"{"metadata":{"name":"gpu"},"spec":{"extendedResourceName":"example.com/gpu",
        "selectors":[{"cel":{"expression":"device.driver == 'gpu.example.com'"}}]}}"#;
    post(client, &format!("{GROUP}/deviceclasses"), class).await;
    cluster
}

fn slice(node: &str, devices: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{node}"}},"spec":{{"driver":"gpu.example.com","nodeName":"{node}","pool":{{
            "name":"{node}","generation":1,"resourceSliceCount":1}},"devices":{devices}}}}}"#
    )
}

fn spec(count: u32) -> String {
    format!(r#"{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"gpu","count":{count}}}}}]}}}}"#)
}

async fn claim(client: &Client, name: &str, count: u32) {
    post(client, CLAIMS, &format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{}}}"#, spec(count))).await;
}

fn user_of(name: &str, claim: &str) -> Tree {
    let mut pod = pod(name, "100m");
    let claim = tree! { "name" => "c", "resourceClaimName" => claim };
    pod.child("spec").set("resourceClaims", list![claim]);
    pod
}

fn is_allocated(claim: &Tree) -> bool {
    claim.get("status").is_some_and(|status| status.has("allocation"))
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_get_devices_until_their_last_pod_is_over() {
    let cluster = devices().await;
    let client = &cluster.client;
    claim(client, "two", 2).await;
    claim(client, "three", 3).await;
    let first = create(client, &user_of("first", "two")).await;
    assert_eq!(client.until(&first, is_bound).await.str("spec.nodeName"), "a");
    let path = format!("{CLAIMS}/two");
    let allocated = client.get(&path).await.tree();
    let devices = allocated.list("status.allocation.devices.results");
    let names: Vec<&str> = devices.iter().map(|device| device.str("device")).collect();
    assert_eq!((names, allocated.list("metadata.finalizers").len()), (vec!["d0", "d1"], 1));
    assert!(!allocated.str("status.allocation.allocationTimestamp").is_empty());
    let shared = create(client, &user_of("shared", "two")).await;
    assert_eq!(client.until(&shared, is_bound).await.str("spec.nodeName"), "a");
    let large = create(client, &user_of("large", "three")).await;
    let waits = client.until(&large, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let text = condition(&waits, "PodScheduled").map(|one| one.str("message")).unwrap_or_default();
    assert!(text.starts_with("0/2 nodes are available: 2 cannot allocate all claims."), "{text}");
    // The last pod frees the devices.
    client.delete(&format!("{first}?gracePeriodSeconds=0")).await;
    client.until(&path, |_, claim| claim.list("status.reservedFor").len() == 1).await;
    let status = r#"{"status":{"phase":"Succeeded"}}"#;
    assert_eq!(client.patch(&format!("{shared}/status"), "merge", status).await.code, 200);
    let free = client.until(&path, |_, claim| !is_allocated(claim) && !claim.at("metadata").has("finalizers")).await;
    assert!(free.list("status.reservedFor").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_claims_and_devices() {
    let cluster = devices().await;
    let client = &cluster.client;
    let path = create(client, &user_of("p", "later")).await;
    claim(client, "later", 1).await;
    client.until(&path, is_bound).await;
    claim(client, "more", 2).await;
    claim(client, "other", 2).await;
    let bound = create(client, &user_of("q", "more")).await;
    let held = client.get(&path).await.tree();
    // The first pod may have a device of either node.
    if held.str("spec.nodeName") == "b" {
        client.until(&bound, is_bound).await;
    }
    let waiting = create(client, &user_of("r", "other")).await;
    client.until(&waiting, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    add_node(client, "c", "4", "10").await;
    post(client, &format!("{GROUP}/resourceslices"), &slice("c", r#"[{"name":"d0"},{"name":"d1"}]"#)).await;
    post(client, &format!("{GROUP}/resourceslices"), &slice("d", r#"[{"name":"d0"},{"name":"d1"}]"#)).await;
    add_node(client, "d", "4", "10").await;
    client.until(&waiting, is_bound).await;
    client.until(&bound, is_bound).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_make_claims_of_pods() {
    let cluster = devices().await;
    let client = &cluster.client;
    let mut user = pod("p", "100m");
    let claim = tree! { "name" => "t", "resourceClaimTemplateName" => "template" };
    user.child("spec").set("resourceClaims", list![claim]);
    let path = create(client, &user).await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedResourceClaimCreation";
    client.until(events, |_, list| !list.list("items").is_empty()).await;
    let template = format!(r#"{{"metadata":{{"name":"template"}},"spec":{{"spec":{}}}}}"#, spec(1));
    post(client, TEMPLATES, &template).await;
    let bound = client.until(&path, is_bound).await;
    let name = bound.list("status.resourceClaimStatuses")[0].str("resourceClaimName").to_string();
    assert!(name.starts_with("p-t-"), "{name}");
    let status = r#"{"status":{"phase":"Succeeded"}}"#;
    assert_eq!(client.patch(&format!("{path}/status"), "merge", status).await.code, 200);
    client.until(&format!("{CLAIMS}/{name}"), |code, _| code == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_provide_extended_resources() {
    let cluster = devices().await;
    let client = &cluster.client;
    let mut user = pod("p", "100m");
    user.list_mut("spec.containers")[0].child("resources").set("limits", tree! { "example.com/gpu" => "2" });
    let bound = client.until(&create(client, &user).await, is_bound).await;
    assert_eq!(bound.str("spec.nodeName"), "a");
    let status = bound.at("status.extendedResourceClaimStatus");
    // By the index among all resources of the container, the first of which is the CPU.
    assert_eq!(status.list("requestMappings")[0].str("requestName"), "container-0-request-1");
    let claim = client.get(&format!("{CLAIMS}/{}", status.str("resourceClaimName"))).await.tree();
    assert_eq!(claim.list("status.allocation.devices.results").len(), 2);
    assert_eq!(claim.list("metadata.ownerReferences")[0].str("uid"), bound.str("metadata.uid"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_tainted_devices_are_evicted() {
    let cluster = devices().await;
    let client = &cluster.client;
    claim(client, "c", 1).await;
    let path = create(client, &user_of("p", "c")).await;
    client.until(&path, is_bound).await;
    let rules = format!("{GROUP}/devicetaintrules");
    let rule = r#"{"metadata":{"name":"broken"},"spec":{"deviceSelector":{"driver":"gpu.example.com"},
        "taint":{"key":"broken","effect":"NoExecute"}}}"#;
    post(client, &rules, rule).await;
    let evicted = client.until(&path, |_, pod| pod.at("metadata").has("deletionTimestamp")).await;
    let reason = condition(&evicted, "DisruptionTarget").map(|one| one.str("reason").to_string());
    assert_eq!(reason.as_deref(), Some("DeletionByDeviceTaintManager"));
    let reported =
        |rule: &Tree| rule.list("status.conditions").iter().any(|one| one.str("type") == "EvictionInProgress");
    client.until(&format!("{rules}/broken"), |_, rule| reported(rule)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_selector_is_an_error_of_the_attempt() {
    let cluster = devices().await;
    let client = &cluster.client;
    let text = r#"{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu",
        "selectors":[{"cel":{"expression":"device.attributes['gpu.example.com'].nope == 1"}}]}}]}}}"#;
    post(client, CLAIMS, text).await;
    let path = create(client, &user_of("p", "c")).await;
    let failed = client.until(&path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let condition = condition(&failed, "PodScheduled").expect("it was there");
    assert_eq!(condition.str("reason"), "SchedulerError");
    let text = condition.str("message");
    assert!(
        text.starts_with("running \"DynamicResources\" filter plugin: claim default/c: selector #0 on device "),
        "{text}"
    );
    assert_eq!(client.get(&format!("{NODES}/a")).await.code, 200);
    assert_eq!(client.get(&format!("{PODS}/p")).await.tree().str("spec.nodeName"), "");
}
