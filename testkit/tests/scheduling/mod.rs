//! The scheduler against a real server: nodes are bare objects, and no kubelet acts on bound pods.

mod broken;
mod devices;
mod extenders;
mod permit;
mod placing;
mod preemption;
mod process;
mod races;
mod volumes;

use std::time::Duration;

use api::{Tree, list, tree};
use scheduler::config::Configuration;
use testkit::{Client, Cluster};

const WHY: &str = "/tiphys/v1/why/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

/// A cluster with a scheduler for each of these names, and nodes that offer so many CPUs and pods.
async fn start(schedulers: &[&str], nodes: &[(&str, &str, &str)]) -> Cluster {
    let profiles = schedulers.iter().map(|name| scheduler::profile_named(name)).collect();
    start_as(Some(Configuration { profiles, ..Configuration::default() }), nodes).await
}

async fn start_as(configuration: Option<Configuration>, nodes: &[(&str, &str, &str)]) -> Cluster {
    let cluster = Cluster::start_changed(|plan, _| plan.scheduler = configuration).await;
    let account = tree! { "metadata" => tree! { "name" => "default" } };
    let created = cluster.client.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    assert!(matches!(created.code, 201 | 409), "{:?}", created.tree());
    for (name, cpu, pods) in nodes {
        add_node(&cluster.client, name, cpu, pods).await;
    }
    cluster
}

async fn add_node(client: &Client, name: &str, cpu: &str, pods: &str) {
    let labels = tree! { "kubernetes.io/hostname" => name };
    let object = tree! {
        "metadata" => tree! { "name" => name, "labels" => labels },
        "status" => tree! { "allocatable" => tree! { "cpu" => cpu, "memory" => "8Gi", "pods" => pods } },
    };
    assert_eq!(client.post(NODES, &object).await.code, 201);
    // A new node is tainted until a controller has observed that it is ready.
    let path = format!("{NODES}/{name}");
    assert_eq!(client.patch(&path, "merge", r#"{"spec":{"taints":null}}"#).await.code, 200);
}

fn pod(name: &str, cpu: &str) -> Tree {
    let resources = tree! { "requests" => tree! { "cpu" => cpu } };
    tree! {
        "metadata" => tree! { "name" => name },
        "spec" => tree! {
            "terminationGracePeriodSeconds" => 30,
            "containers" => list![tree! { "name" => "c", "image" => "i", "resources" => resources }],
        },
    }
}

async fn create(client: &Client, pod: &Tree) -> String {
    let reply = client.post(PODS, pod).await;
    assert_eq!(reply.code, 201, "{:?}", reply.tree());
    format!("{PODS}/{}", pod.str("metadata.name"))
}

fn is_bound(_: u16, pod: &Tree) -> bool {
    !pod.str("spec.nodeName").is_empty()
}

fn condition<'a>(pod: &'a Tree, name: &str) -> Option<&'a Tree> {
    pod.list("status.conditions").iter().find(|condition| condition.str("type") == name)
}

/// Waits for an event of an object with a reason, as events.k8s.io has it.
async fn whole_event(client: &Client, object: &str, reason: &str) -> Tree {
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let path = format!("{events}?fieldSelector=regarding.name%3D{object}%2Creason%3D{reason}");
    let list = client.until(&path, |_, list| !list.list("items").is_empty()).await;
    list.list("items")[0].clone()
}

/// The same; its message.
async fn event(client: &Client, object: &str, reason: &str) -> String {
    let event = whole_event(client, object, reason).await;
    assert_eq!(event.str("reportingController"), "default-scheduler");
    event.str("note").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_pods_have_an_event() {
    let cluster = start(&["default-scheduler"], &[("one", "4", "10")]).await;
    let client = &cluster.client;
    let path = create(client, &pod("p", "1")).await;
    let bound = client.until(&path, is_bound).await;
    assert_eq!(bound.str("spec.nodeName"), "one");
    assert_eq!(condition(&bound, "PodScheduled").map(|one| one.str("status")), Some("True"));
    let recorded = whole_event(client, "p", "Scheduled").await;
    let fields = ["type", "action", "note", "reportingController", "regarding.kind"].map(|field| recorded.str(field));
    let note = "Successfully assigned default/p to one";
    assert_eq!(fields, ["Normal", "Binding", note, "default-scheduler", "Pod"]);
    let host = server::hostname();
    assert_eq!(recorded.str("reportingInstance"), format!("default-scheduler-{host}"));
    assert_eq!(recorded.str("regarding.uid"), bound.str("metadata.uid"));
    // The scheduler's metrics are served together with the server's.
    let metrics = client.get("/metrics").await.text();
    for name in [
        r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1"#,
        r#"scheduler_plugin_evaluation_total{extension_point="Filter",plugin="NodeResourcesFit",profile="default-scheduler"} 1"#,
        r#"scheduler_plugin_execution_duration_seconds_count{extension_point="PreFilter",plugin="NodeResourcesFit",status="Success"} 1"#,
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    // The older form is a view of the same.
    let path = format!("/api/v1/namespaces/default/events/{}", recorded.str("metadata.name"));
    let old = client.get(&path).await.tree();
    assert_eq!((old.str("message"), old.str("action"), old.str("involvedObject.name")), (note, "Binding", "p"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_events_are_a_series() {
    let cluster = start(&["default-scheduler"], &[("one", "4", "10")]).await;
    let client = &cluster.client;
    let mut near = pod("near", "1");
    let term = tree! { "topologyKey" => "zone", "labelSelector" => tree! { "matchLabels" => tree! { "app" => "x" } } };
    let path = "affinity.podAffinity";
    near.child("spec").child(path).set("requiredDuringSchedulingIgnoredDuringExecution", list![term]);
    create(client, &near).await;
    let first = whole_event(client, "near", "FailedScheduling").await;
    assert_eq!((first.str("type"), first.str("action"), first.has("series")), ("Warning", "Scheduling", false));
    // A pod that matches its affinity triggers a retry, but the node has no zone.
    let mut friend = pod("friend", "1");
    friend.child("metadata").set("labels", tree! { "app" => "x" });
    client.until(&create(client, &friend).await, is_bound).await;
    let path = format!("/apis/events.k8s.io/v1/namespaces/default/events/{}", first.str("metadata.name"));
    let again = client.until(&path, |_, event| event.has("series")).await;
    assert_eq!((again.int("series.count"), again.str("note")), (Some(2), first.str("note")));
    assert!(again.str("series.lastObservedTime") > first.str("eventTime"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_report_why_and_are_retried() {
    let cluster = start(&["default-scheduler"], &[("one", "1", "10"), ("two", "1", "10")]).await;
    let client = &cluster.client;
    client.patch(&format!("{NODES}/two"), "merge", r#"{"spec":{"unschedulable":true}}"#).await;
    client.until(&format!("{NODES}/two"), |_, node| node.bool("spec.unschedulable")).await;
    let path = create(client, &pod("p", "2")).await;
    let waits = client.until(&path, |_, pod| condition(pod, "PodScheduled").is_some()).await;
    let message =
        condition(&waits, "PodScheduled").map(|one| (one.str("status"), one.str("reason"), one.str("message")));
    let text = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are \
                available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(message, Some(("False", "Unschedulable", text)));
    assert_eq!(event(client, "p", "FailedScheduling").await, text);
    let why = client.get(&format!("{WHY}/p")).await.tree();
    let plugins: Vec<&str> = why.list("nodes").iter().map(|node| node.str("plugin")).collect();
    assert_eq!((plugins.as_slice(), why.str("message")), (&["NodeResourcesFit", "NodeUnschedulable"][..], text));
    let stranger = [("impersonate-user", "stranger")];
    for (method, path) in [("GET", format!("{WHY}/p")), ("POST", WHY.to_string())] {
        assert_eq!(client.raw(method, &path, &stranger, Vec::new()).await.code, 403, "{method}");
    }
    assert_eq!(client.get(&format!("{WHY}/none")).await.code, 404);
    assert_eq!(client.delete(&format!("{WHY}/p")).await.code, 405);

    let bigger = r#"{"status":{"allocatable":{"cpu":"2"}}}"#;
    assert_eq!(client.patch(&format!("{NODES}/one/status"), "merge", bigger).await.code, 200);
    let bound = client.until(&path, is_bound).await;
    assert_eq!(bound.str("spec.nodeName"), "one");
    assert_eq!(client.get(&format!("{WHY}/p")).await.tree().str("node"), "one");
    let answer = client.post(WHY, &pod("q", "1")).await.tree();
    assert!(answer.str("message").contains("Insufficient cpu"), "{answer:?}");
    assert_eq!(client.get(&format!("{PODS}/q")).await.code, 404, "no pod is created");
    assert_eq!(client.post(WHY, &pod("Bad", "much")).await.code, 400, "a bad manifest is refused as a create is");
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduling_gates_block_pods() {
    let cluster = start(&["default-scheduler"], &[("one", "4", "10")]).await;
    let client = &cluster.client;
    let mut gated = pod("gated", "1");
    gated.child("spec").set("schedulingGates", list![tree! { "name" => "example.com/wait" }]);
    let path = create(client, &gated).await;
    // A later pod is bound: it has overtaken the gated one.
    client.until(&create(client, &pod("free", "1")).await, is_bound).await;
    assert!(!is_bound(200, &client.get(&path).await.tree()));
    let reply = client.patch(&path, "merge", r#"{"spec":{"schedulingGates":null}}"#).await;
    assert_eq!(reply.code, 200, "{:?}", reply.tree());
    client.until(&path, is_bound).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedulers_take_their_own_pods() {
    let cluster = start(&["default-scheduler", "mine"], &[("one", "4", "10")]).await;
    let client = &cluster.client;
    let named = |name: &str, scheduler: &str| {
        let mut pod = pod(name, "1");
        pod.child("spec").set("schedulerName", scheduler);
        pod
    };
    let foreign = create(client, &named("foreign", "elsewhere")).await;
    let mine = create(client, &named("mine", "mine")).await;
    client.until(&mine, is_bound).await;
    client.until(&create(client, &pod("usual", "1")).await, is_bound).await;
    assert!(!is_bound(200, &client.get(&foreign).await.tree()));
}
