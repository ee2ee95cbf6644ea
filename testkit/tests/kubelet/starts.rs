//! The start of containers, and the errors that are reported, with a kubelet on a fake runtime.

use api::Tree;
use testkit::{Client, Cluster};

use super::life::{condition, start, told};
use super::volumes::{CORE, make};
use crate::until;

async fn pod(client: &Client, name: &str, spec: &str) -> Tree {
    let text =
        format!("{{metadata: {{name: {name}}}, spec: {{nodeName: n1, terminationGracePeriodSeconds: 1, {spec}}}}}");
    make(client, &format!("{CORE}/pods"), &text).await
}

fn waiting(pod: &Tree, name: &str) -> String {
    let mut all = pod.list("status.containerStatuses").iter();
    all.find(|one| one.str("name") == name).map_or("", |one| one.str("state.waiting.reason")).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_image_volume_blocks_its_containers() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let agent = start(&cluster, |_| {}).await;
    let spec = "volumes: [{name: v, image: {reference: 'missing:1'}}], containers: [{name: free, image: 'i:1'}, \
        {name: bound, image: 'i:1', volumeMounts: [{name: v, mountPath: /v}]}]";
    pod(client, "p", spec).await;
    let is_told = |pod: &Tree| matches!(waiting(pod, "bound").as_str(), "ErrImagePull" | "ImagePullBackOff");
    client.until(&format!("{CORE}/pods/p"), |_, pod| is_told(pod)).await;
    until("the other runs", async || agent.runtime.running() == ["free"]).await;
    assert!(told(client, "p", "Failed").await.contains("no such image"));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_events_of_a_pod() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let agent = start(&cluster, |_| {}).await;
    pod(client, "p", "containers: [{name: c, image: 'i:1'}]").await;
    client.until(&format!("{CORE}/pods/p"), |_, pod| condition(pod, "Ready") == "True").await;
    let missing = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
    assert!(told(client, "p", "MissingClusterDNS").await.ends_with(&format!(". {missing}")));
    assert_eq!(told(client, "n1", "MissingClusterDNS").await, missing);
    agent.runtime.lose_sandboxes();
    let text = "Pod sandbox changed, it will be killed and re-created.";
    assert_eq!(told(client, "p", "SandboxChanged").await, text);
    client.until(&format!("{CORE}/pods/p"), |_, pod| condition(pod, "Ready") == "True").await;

    // A container whose postStart hook fails gets its preStop hook: this runtime can run neither.
    let hook = "exec: {command: [nothing]}";
    let spec =
        format!("containers: [{{name: c, image: 'i:1', lifecycle: {{postStart: {{{hook}}}, preStop: {{{hook}}}}}}}]");
    pod(client, "hooked", &spec).await;
    assert_eq!(told(client, "hooked", "FailedPostStartHook").await, "PostStartHook failed");
    assert_eq!(told(client, "hooked", "FailedPreStopHook").await, "PreStopHook failed");
    assert_eq!(told(client, "hooked", "Killing").await, "FailedPostStartHook");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_resolv_conf_is_an_error() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let agent = start(&cluster, |config| config.resolv_conf = "/nowhere/resolv.conf".into()).await;
    pod(client, "p", "containers: [{name: c, image: 'i:1'}]").await;
    let said = told(client, "p", "FailedCreatePodSandBox").await;
    assert!(said.starts_with("Failed to create pod sandbox: open /nowhere/resolv.conf: "), "{said}");
    assert!(agent.runtime.running().is_empty());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_parallel_image_pulls() {
    for (is_serial, most, wanted) in [(true, None, 1), (false, Some(2), 2), (false, None, 4)] {
        let cluster = Cluster::start_whole().await;
        let client = &cluster.client;
        let agent = start(&cluster, |config| {
            config.image_pulls.serialize = is_serial;
            config.image_pulls.max_parallel = most;
        })
        .await;
        for name in ["a", "b", "c", "d"] {
            pod(client, name, &format!("containers: [{{name: {name}, image: 'slow-{name}:1'}}]")).await;
            // Each pod pulls, or waits for its turn.
            told(client, name, "Pulling").await;
        }
        until("pulls", async || agent.runtime.pulling() == wanted).await;
        for done in 1..=4 {
            agent.runtime.gate.notify_one();
            until("some are done", async || {
                agent.runtime.pulls().len() == done && agent.runtime.pulling() == wanted.min(4 - done)
            })
            .await;
        }
        assert_eq!(agent.runtime.state().most_pulling, wanted);
        agent.stop().await;
    }
}
