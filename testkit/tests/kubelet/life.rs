//! More of the life of a pod, with a kubelet on a fake runtime.

use std::collections::BTreeMap;

use api::{Tree, tree};
use http::StatusCode;
use testkit::{Client, Cluster};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::pods::Agent;
use super::volumes::{CORE, make};

pub async fn start(cluster: &Cluster, change: impl FnOnce(&mut kubelet::Config)) -> Agent {
    let client = &cluster.client;
    client.until(&format!("{CORE}/serviceaccounts/default"), |code, _| code == 200).await;
    let agent = Agent::start(cluster, "n1", change).await;
    client.until("/api/v1/nodes/n1", |_, node| condition(node, "Ready") == "True").await;
    agent
}

pub fn condition<'a>(object: &'a Tree, kind: &str) -> &'a str {
    let conditions = object.list("status.conditions").iter();
    conditions.into_iter().find(|one| one.str("type") == kind).map_or("", |one| one.str("status"))
}

/// The messages of an object's events with a reason.
pub async fn told(client: &Client, name: &str, reason: &'static str) -> String {
    let path = format!("{CORE}/events?fieldSelector=involvedObject.name%3D{name}");
    let is_it = move |event: &&Tree| event.str("reason") == reason;
    let list = client.until(&path, |_, list| list.list("items").iter().any(|event| is_it(&event))).await;
    list.list("items").iter().find(is_it).map(|event| event.str("message").to_string()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn critical_pods_preempt() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let agent = start(&cluster, |config| config.max_pods = 1).await;
    let pod = |name: &str, more: &str| {
        format!(
            "{{metadata: {{name: {name}}}, spec: {{nodeName: n1, {more} containers: [{{name: {name}, image: 'i:1'}}]}}}}"
        )
    };
    make(client, &format!("{CORE}/pods"), &pod("plain", "terminationGracePeriodSeconds: 1,")).await;
    client.until(&format!("{CORE}/pods/plain"), |_, pod| condition(pod, "Ready") == "True").await;
    make(client, &format!("{CORE}/pods"), &pod("refused", "")).await;
    let refused = client.until(&format!("{CORE}/pods/refused"), |_, pod| pod.str("status.phase") == "Failed").await;
    assert_eq!(refused.str("status.reason"), "OutOfpods");
    make(client, &format!("{CORE}/pods"), &pod("critical", "priorityClassName: system-node-critical,")).await;
    client.until(&format!("{CORE}/pods/critical"), |_, pod| condition(pod, "Ready") == "True").await;
    let victim = client.until(&format!("{CORE}/pods/plain"), |_, pod| pod.str("status.phase") == "Failed").await;
    assert_eq!(victim.str("status.reason"), "Preempting");
    assert_eq!(victim.str("status.message"), "Preempted in order to admit critical pod");
    assert_eq!(condition(&victim, "DisruptionTarget"), "True");
    assert_eq!(told(client, "plain", "Preempting").await, "Preempted in order to admit critical pod");
    let metrics = agent.metrics.render();
    for line in
        ["kubelet_preemptions{preemption_signal=\"pods\"} 1", "kubelet_running_pods 1", "kubelet_started_pods_total 2"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    agent.stop().await;
}

/// A server that responds with the newest text.
pub async fn serve(texts: tokio::sync::watch::Receiver<String>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            let _ = socket.read(&mut asked).await;
            let text = texts.borrow().clone();
            let head = format!("HTTP/1.1 {}\r\ncontent-length: {}\r\n\r\n", StatusCode::OK, text.len());
            let _ = socket.write_all(format!("{head}{text}").as_bytes()).await;
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_from_a_url_replace_each_other() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let manifest = |container: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{terminationGracePeriodSeconds: 1, \
             containers: [{{name: {container}, image: 'i:1'}}]}}}}"
        )
    };
    let (change, texts) = tokio::sync::watch::channel(manifest("first"));
    let url = serve(texts).await;
    let agent = start(&cluster, |config| {
        config.static_pod_url = Some(url);
        config.http_check_frequency = std::time::Duration::from_millis(100);
    })
    .await;
    let path = format!("{CORE}/pods/web-n1");
    let runs = |container: &'static str| {
        move |_: u16, pod: &Tree| {
            let statuses = pod.list("status.containerStatuses");
            statuses.iter().any(|status| status.str("name") == container && status.bool("ready"))
        }
    };
    let shown = client.until(&path, runs("first")).await;
    assert_eq!(shown.map("metadata.annotations").str("kubernetes.io/config.source"), "http");
    change.send_replace(manifest("second"));
    client.until(&path, runs("second")).await;
    assert_eq!(agent.runtime.running(), ["second"]);
    let began = agent.runtime.order();
    assert_eq!(began, ["+first", "-first", "+second"], "they were never there at once");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_plugins_and_accounts_provide_pull_credentials() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("plugin");
    let answer = r#"{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Global","auth":{"r.example":{"username":"plugin","password":"p"}}}"#;
    std::fs::write(&program, format!("#!/bin/sh\ncat > {}/asked\necho '{answer}'\n", dir.path().display()))
        .expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let file = dir.path().join("config.yaml");
    let config = "{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [{name: plugin, \
        matchImages: [r.example], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}]}";
    std::fs::write(&file, config).expect("a file");
    let programs = dir.path().to_path_buf();
    let agent = start(&cluster, |config| {
        config.credential_provider_config = Some(file);
        config.credential_provider_bin_dir = Some(programs);
    })
    .await;
    let auths = r#"{"auths":{"r.example/secret":{"username":"secret","password":"p"}}}"#;
    let secret = tree! {
        "metadata" => tree! { "name" => "pull" }, "type" => "kubernetes.io/dockerconfigjson",
        "stringData" => tree! { ".dockerconfigjson" => auths },
    };
    assert_eq!(client.post(&format!("{CORE}/secrets"), &secret).await.code, 201);
    // The account's secrets become the pod's own.
    let patch = r#"{"imagePullSecrets":[{"name":"pull"}]}"#;
    assert_eq!(client.patch(&format!("{CORE}/serviceaccounts/default"), "merge", patch).await.code, 200);
    for (name, image) in [("a", "r.example/secret/a:1"), ("b", "r.example/b:1"), ("c", "other.example/c:1")] {
        let text = format!(
            "{{metadata: {{name: {name}}}, spec: {{nodeName: n1, containers: [{{name: {name}, image: '{image}'}}]}}}}"
        );
        make(client, &format!("{CORE}/pods"), &text).await;
        client.until(&format!("{CORE}/pods/{name}"), |_, pod| condition(pod, "Ready") == "True").await;
    }
    let pulls = agent.runtime.pulls().into_iter();
    let users: BTreeMap<String, String> = pulls
        .map(|pull| (pull.image.unwrap_or_default().image, pull.auth.map(|auth| auth.username).unwrap_or_default()))
        .collect();
    let users: Vec<(&str, &str)> = users.iter().map(|(image, user)| (image.as_str(), user.as_str())).collect();
    assert_eq!(users, [("other.example/c:1", ""), ("r.example/b:1", "plugin"), ("r.example/secret/a:1", "secret")]);
    assert_eq!(told(client, "b", "Pulling").await, "Pulling image \"r.example/b:1\"");
    let pulled = told(client, "b", "Pulled").await;
    assert!(pulled.starts_with("Successfully pulled image \"r.example/b:1\" in "), "{pulled}");
    assert!(pulled.ends_with(" including waiting). Image size: 7 bytes."), "{pulled}");
    let metrics = agent.metrics.render();
    assert!(metrics.contains("kubelet_pod_start_sli_duration_seconds_count 3"), "{metrics}");
    agent.stop().await;
}

/// Annotations of API pods can set neither the location of its files nor that it is a static pod.
#[tokio::test(flavor = "multi_thread")]
async fn ignores_internal_annotations_of_api_pods() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let dir = tempfile::tempdir().expect("a directory");
    let (logs, precious) = (dir.path().join("logs/pods"), dir.path().join("precious"));
    std::fs::create_dir(&precious).expect("a directory");
    let place = logs.clone();
    let agent = start(&cluster, |config| {
        config.max_pods = 1;
        config.pod_logs_dir = place;
    })
    .await;
    let pod = |name: &str| {
        format!(
            "{{metadata: {{name: {name}, annotations: {{kubernetes.io/config.hash: x/../../../precious, \
             kubernetes.io/config.source: file}}}}, spec: {{nodeName: n1, terminationGracePeriodSeconds: 1, \
             containers: [{{name: {name}, image: 'i:1'}}]}}}}"
        )
    };
    make(client, &format!("{CORE}/pods"), &pod("sly")).await;
    let sly = client.until(&format!("{CORE}/pods/sly"), |_, pod| condition(pod, "Ready") == "True").await;
    assert!(logs.join(format!("default_sly_{}", sly.str("metadata.uid"))).is_dir());
    make(client, &format!("{CORE}/pods"), &pod("pushy")).await;
    let pushy = client.until(&format!("{CORE}/pods/pushy"), |_, pod| pod.str("status.phase") == "Failed").await;
    assert_eq!(pushy.str("status.reason"), "OutOfpods", "it is not critical");
    for name in ["sly", "pushy"] {
        client.delete(&format!("{CORE}/pods/{name}")).await;
        client.until(&format!("{CORE}/pods/{name}"), |code, _| code == 404).await;
    }
    assert!(precious.is_dir());
    assert_eq!(std::fs::read_dir(&logs).expect("a directory").count(), 0);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runtime_gets_the_pod_cidr() {
    let cluster = Cluster::start_whole().await;
    let agent = start(&cluster, |_| {}).await;
    let patch = r#"{"spec":{"podCIDR":"10.99.7.0/24","podCIDRs":["10.99.7.0/24","fd00:7::/64"]}}"#;
    assert_eq!(cluster.client.patch("/api/v1/nodes/n1", "strategic-merge", patch).await.code, 200);
    let told = || agent.runtime.state().cidrs.clone();
    crate::until("the runtime is told", async || !told().is_empty()).await;
    assert_eq!(told(), ["10.99.7.0/24,fd00:7::/64"]);
    agent.stop().await;
}
