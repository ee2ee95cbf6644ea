//! A pod behind a Service is stopped after the proxies have confirmed that they removed it.

use std::time::{Duration, Instant};

use api::Tree;
use testkit::{Client, Cluster};

use super::node_client;
use super::pods::Agent;
use super::volumes::{CORE, make};

const NODES: client::Resource = client::Resource::core("nodes");
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const APPLIED: &str = "tiphys.io/endpoints-applied";

/// A fake proxy: the test writes its confirmations to the node.
struct Proxy(client::Client, &'static str);

impl Proxy {
    /// With the rights of its node and no others.
    fn on(cluster: &Cluster, node: &'static str) -> Proxy {
        Proxy(node_client(cluster, node), node)
    }

    async fn confirm(&self, revision: &str) {
        let patch = api::tree! { "metadata" => api::tree! { "annotations" => api::tree! { APPLIED => revision } } };
        let said = self.0.patch(NODES, "", self.1, "", client::Patch::Merge(&patch)).await;
        assert!(said.is_ok(), "{said:?}");
    }
}

fn condition<'a>(pod: &'a Tree, kind: &str) -> &'a str {
    let conditions = pod.list("status.conditions").iter();
    conditions.into_iter().find(|one| one.str("type") == kind).map_or("", |one| one.str("status"))
}

async fn serve(client: &Client, name: &str, node: &str, grace: i64) {
    let labels = format!("labels: {{app: {name}}}");
    let spec = format!(
        "{{nodeName: {node}, terminationGracePeriodSeconds: {grace}, containers: [{{name: {name}, image: 'i:1'}}]}}"
    );
    make(client, &format!("{CORE}/pods"), &format!("{{metadata: {{name: {name}, {labels}}}, spec: {spec}}}")).await;
    let ports = "ports: [{port: 80}]";
    let service = format!("{{metadata: {{name: {name}}}, spec: {{selector: {{app: {name}}}, {ports}}}}}");
    make(client, &format!("{CORE}/services"), &service).await;
}

/// The slice of a service, once its pod is, or is not, terminating.
async fn slice(client: &Client, service: &str, ends: bool) -> Tree {
    let path = format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{service}");
    let said = |list: &Tree| {
        let endpoints = list.list("items").first().map(|slice| slice.list("endpoints").to_vec()).unwrap_or_default();
        endpoints.first().is_some_and(|endpoint| endpoint.bool("conditions.terminating") == ends)
    };
    let list = client.until(&path, |_, list| said(list)).await;
    list.list("items")[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_stop_after_proxies_confirm() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    client.until(&format!("{CORE}/serviceaccounts/default"), |code, _| code == 200).await;
    let agent = Agent::start(&cluster, "n1", |_| {}).await;
    let other = Agent::start(&cluster, "n2", |_| {}).await;
    for node in ["n1", "n2"] {
        client.until(&format!("/api/v1/nodes/{node}"), |_, node| condition(node, "Ready") == "True").await;
    }
    let pod = |name: &str| format!("{CORE}/pods/{name}");

    // No proxy confirms: the kubelet does not wait.
    serve(client, "plain", "n1", 600).await;
    client.until(&pod("plain"), |_, pod| condition(pod, "Ready") == "True").await;
    slice(client, "plain", false).await;
    client.delete(&pod("plain")).await;
    client.until(&pod("plain"), |code, _| code == 404).await;

    // Both proxies confirm: the condition reports that the pod is in rotation.
    let (first, second) = (Proxy::on(&cluster, "n1"), Proxy::on(&cluster, "n2"));
    first.confirm("1").await;
    second.confirm("1").await;
    serve(client, "web", "n1", 600).await;
    client.until(&pod("web"), |_, pod| condition(pod, "tiphys.io/OutOfRotation") == "False").await;
    client.delete(&pod("web")).await;
    let revision = slice(client, "web", true).await.str("metadata.resourceVersion").to_string();
    first.confirm(&revision).await;
    // One of two is not enough: later work of the same kubelet is done long before.
    serve(client, "after", "n1", 600).await;
    client.until(&pod("after"), |_, pod| condition(pod, "Ready") == "True").await;
    assert!(agent.runtime.running().contains(&"web".to_string()), "{:?}", agent.runtime.stopped());
    second.confirm(&revision).await;
    client.until(&pod("web"), |code, _| code == 404).await;
    let given = agent.runtime.stopped().into_iter().find(|(name, _)| name == "web").map(|(_, seconds)| seconds);
    assert!(given.is_some_and(|given| (300..=600).contains(&given)), "{given:?}");

    // No proxy confirms in time: half of the grace period is the container's own.
    serve(client, "late", "n1", 4).await;
    client.until(&pod("late"), |_, pod| condition(pod, "tiphys.io/OutOfRotation") == "False").await;
    let begun = Instant::now();
    client.delete(&pod("late")).await;
    client.until(&pod("late"), |code, _| code == 404).await;
    assert!(begun.elapsed() >= Duration::from_millis(1900), "{:?}", begun.elapsed());
    assert!(agent.runtime.stopped().contains(&("late".to_string(), 2)), "{:?}", agent.runtime.stopped());
    agent.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_by_proxies_can_be_disabled() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    client.until(&format!("{CORE}/serviceaccounts/default"), |code, _| code == 200).await;
    let agent = Agent::start(&cluster, "n1", |config| config.drain_by_proxies = false).await;
    client.until("/api/v1/nodes/n1", |_, node| condition(node, "Ready") == "True").await;
    Proxy::on(&cluster, "n1").confirm("1").await;
    serve(client, "web", "n1", 600).await;
    let pod = format!("{CORE}/pods/web");
    client.until(&pod, |_, pod| condition(pod, "tiphys.io/OutOfRotation") == "False").await;
    client.delete(&pod).await;
    client.until(&pod, |code, _| code == 404).await;
    agent.stop().await;
}
