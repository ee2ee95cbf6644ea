//! Responses as clients read them: the order of keys, canonical values, warnings and error texts.

use api::{Tree, list, tree};
use testkit::{Client, Cluster, Storage};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn check_start(client: &Client, path: &str, want: &str) {
    let text = client.get(path).await.text();
    assert!(text.starts_with(want), "{path}: {text:.200}");
}

async fn check_refusal(client: &Client, path: &str, body: &Tree, want: &str) {
    let reply = client.post(path, body).await;
    let message = reply.tree().str("message").to_string();
    assert!(message.contains(want), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_in_the_order_of_go_types() {
    let cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    check_start(client, "/api", r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":"#).await;
    let binding =
        r#"{"name":"bindings","singularName":"binding","namespaced":true,"kind":"Binding","verbs":["create"]}"#;
    let core = format!(r#"{{"kind":"APIResourceList","groupVersion":"v1","resources":[{binding},"#);
    check_start(client, "/api/v1", &core).await;
    let group = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"controllerrevisions","singularName":"#;
    check_start(client, "/apis/apps/v1", group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn base64_is_stored_in_one_form() {
    let cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let secret = tree! { "metadata" => tree! { "name" => "s" }, "data" => tree! { "a" => "YWJj\nZGVm\n" } };
    assert_eq!(client.post(SECRETS, &secret).await.tree().str("data.a"), "YWJjZGVm");
    let path = format!("{SECRETS}/s");
    let patched = client.patch(&path, "merge", r#"{"data":{"b":"YR=="}}"#).await;
    assert_eq!(patched.tree().str("data.b"), "YQ==");
    let bad = tree! { "metadata" => tree! { "name" => "t" }, "data" => tree! { "a" => "ab=d" } };
    check_refusal(client, SECRETS, &bad, "illegal base64 data at input byte 2").await;
}

fn workload(name: &str, labels: Tree, container: Tree) -> Tree {
    let template = tree! {
        "metadata" => tree! { "labels" => labels },
        "spec" => tree! { "containers" => list![container] },
    };
    let selector = tree! { "matchLabels" => tree! { "a" => "b" } };
    let spec = tree! { "selector" => selector, "template" => template };
    tree! { "metadata" => tree! { "name" => name }, "spec" => spec }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_show_what_was_sent_and_name_gos_types() {
    let cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let apps = "/apis/apps/v1/namespaces/default";
    let unlabelled = workload("d", tree! {}, tree! { "name" => "c", "image" => "i" });
    let text = "spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`";
    check_refusal(client, &format!("{apps}/daemonsets"), &unlabelled, text).await;
    let nameless = workload("s", tree! { "a" => "b" }, tree! { "image" => "i" });
    let text = "StatefulSet.apps \"s\" is invalid: spec.template.spec.containers[0].name: Required value";
    check_refusal(client, &format!("{apps}/statefulsets"), &nameless, text).await;
    let pod = tree! { "metadata" => tree! { "name" => "p" }, "spec" => tree! { "restartPolicy" => 1 } };
    let text = "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy";
    check_refusal(client, "/api/v1/namespaces/default/pods", &pod, text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_objects_get_warnings() {
    let cluster = Cluster::start(Storage::Embedded).await;
    let spec = tree! { "trafficDistribution" => "PreferClose", "ports" => list![tree! { "port" => 80 }] };
    let service = tree! { "metadata" => tree! { "name" => "s" }, "spec" => spec };
    let reply = cluster.client.post("/api/v1/namespaces/default/services", &service).await;
    let warnings: Vec<&str> = reply.headers.get_all("warning").iter().filter_map(|text| text.to_str().ok()).collect();
    let want = r#"299 - "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"""#;
    assert_eq!((reply.code, warnings), (201, vec![want]));
}
