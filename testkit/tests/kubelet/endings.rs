//! A pod that stops slowly: a shorter grace period applies at once, and its status is updated meanwhile.

use api::Tree;
use testkit::Cluster;
use tokio::net::TcpListener;

use super::pods::Agent;
use super::volumes::{CORE, make};

fn condition<'a>(object: &'a Tree, kind: &str) -> &'a str {
    let conditions = object.list("status.conditions").iter();
    conditions.into_iter().find(|one| one.str("type") == kind).map_or("", |one| one.str("status"))
}

#[tokio::test(flavor = "multi_thread")]
async fn shorter_grace_periods_override() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    client.until(&format!("{CORE}/serviceaccounts/default"), |code, _| code == 200).await;
    let agent = Agent::start(&cluster, "n1", |_| {}).await;
    client.until("/api/v1/nodes/n1", |_, node| condition(node, "Ready") == "True").await;
    agent.runtime.state().stubborn = vec!["slow".to_string()];
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let probe = format!(
        "readinessProbe: {{tcpSocket: {{host: 127.0.0.1, port: {port}}}, periodSeconds: 1, failureThreshold: 1}}"
    );
    let container = format!("{{name: slow, image: 'i:1', {probe}}}");
    let spec = format!("{{nodeName: n1, terminationGracePeriodSeconds: 600, containers: [{container}]}}");
    make(client, &format!("{CORE}/pods"), &format!("{{metadata: {{name: slow}}, spec: {spec}}}")).await;
    let path = format!("{CORE}/pods/slow");
    client.until(&path, |_, pod| condition(pod, "Ready") == "True").await;
    client.delete(&path).await;
    let generation = |pod: &Tree| pod.int("metadata.generation");
    client.until(&path, |_, pod| pod.at("status").int("observedGeneration") == generation(pod)).await;
    // The container no longer responds, and its worker waits for its exit.
    drop(listener);
    let pod = client.until(&path, |_, pod| condition(pod, "Ready") == "False").await;
    assert_eq!(pod.str("status.phase"), "Running");
    client.delete(&format!("{path}?gracePeriodSeconds=1")).await;
    client.until(&path, |code, _| code == 404).await;
    assert_eq!(agent.runtime.stopped(), [("slow".to_string(), 2)]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reason_is_reported_before_the_pod_has_stopped() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    client.until(&format!("{CORE}/serviceaccounts/default"), |code, _| code == 200).await;
    let agent = Agent::start(&cluster, "n1", |config| config.max_pods = 1).await;
    client.until("/api/v1/nodes/n1", |_, node| condition(node, "Ready") == "True").await;
    agent.runtime.state().stubborn = vec!["slow".to_string()];
    let pod = |name: &str, more: &str| {
        let containers = format!("containers: [{{name: {name}, image: 'i:1'}}]");
        format!("{{metadata: {{name: {name}}}, spec: {{nodeName: n1, {more}, {containers}}}}}")
    };
    make(client, &format!("{CORE}/pods"), &pod("slow", "terminationGracePeriodSeconds: 600")).await;
    client.until(&format!("{CORE}/pods/slow"), |_, pod| condition(pod, "Ready") == "True").await;
    make(client, &format!("{CORE}/pods"), &pod("critical", "priorityClassName: system-node-critical")).await;
    let path = format!("{CORE}/pods/slow");
    let slow = client.until(&path, |_, pod| condition(pod, "DisruptionTarget") == "True").await;
    assert_eq!(slow.str("status.phase"), "Running", "it has not ended yet");
    let conditions = slow.list("status.conditions");
    let target = conditions.iter().find(|one| one.str("type") == "DisruptionTarget").expect("a condition");
    assert_eq!(target.str("message"), "Pod was preempted by Kubelet to accommodate a critical pod.");
    assert!(!target.str("lastTransitionTime").is_empty() && target.int("observedGeneration") == Some(1), "{target:?}");
    client.delete(&format!("{path}?gracePeriodSeconds=1")).await;
    client.until(&format!("{CORE}/pods/critical"), |_, pod| condition(pod, "Ready") == "True").await;
    agent.stop().await;
}
