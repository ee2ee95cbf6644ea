//! Probes of real servers, for pods on a fake runtime.

use api::Tree;
use testkit::{Cluster, Etcd};

use super::life::{condition, start, told};
use super::volumes::{CORE, make};

fn pod(name: &str, probe: &str) -> String {
    format!(
        "{{metadata: {{name: {name}}}, spec: {{nodeName: n1, hostNetwork: true, containers: [{{name: {name}, image: 'i:1', \
         {probe}}}]}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_follow_the_pod_spec() {
    let dir = tempfile::tempdir().expect("a directory");
    let (cluster, etcd) = (Cluster::start_whole().await, Etcd::start(dir.path()).await);
    let client = &cluster.client;
    let agent = start(&cluster, |_| {}).await;
    let (https, grpc) = (cluster.address().port(), etcd.port());
    let plain = redirecting().await;
    let often = "periodSeconds: 1";
    let good = [
        ("secure", format!("readinessProbe: {{{often}, httpGet: {{scheme: HTTPS, port: {https}, path: /healthz}}}}")),
        ("away", format!("readinessProbe: {{{often}, httpGet: {{port: {plain}, path: /a b}}}}")),
        ("health", format!("readinessProbe: {{{often}, grpc: {{port: {grpc}}}}}")),
    ];
    for (name, probe) in &good {
        make(client, &format!("{CORE}/pods"), &pod(name, probe)).await;
    }
    let other = format!("readinessProbe: {{{often}, grpc: {{port: {grpc}, service: other}}}}");
    make(client, &format!("{CORE}/pods"), &pod("unknown", &other)).await;
    for (name, _) in &good {
        client.until(&format!("{CORE}/pods/{name}"), |_, pod| condition(pod, "Ready") == "True").await;
    }
    let text = "Readiness probe warning: Probe terminated redirects, Response body: gone";
    assert_eq!(told(client, "away", "ProbeWarning").await, text);
    let text = told(client, "unknown", "Unhealthy").await;
    assert!(text.starts_with("Readiness probe failed: error: health rpc probe failed"), "{text}");
    let unknown = client.until(&format!("{CORE}/pods/unknown"), |code, _| code == 200).await;
    assert_eq!(condition(&unknown, "Ready"), "False");
    agent.stop().await;
}

/// Sends everybody to another host.
async fn redirecting() -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 302 Found\r\nlocation: http://elsewhere.invalid/\r\ncontent-length: 4\r\n\r\ngone";
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_set_the_grace_period() {
    let cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let agent = start(&cluster, |_| {}).await;
    // No process listens on port 1.
    let probe = "livenessProbe: {periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 7, \
                 tcpSocket: {host: 127.0.0.1, port: 1}}";
    make(client, &format!("{CORE}/pods"), &pod("short", probe)).await;
    let restarts = |pod: &Tree| pod.list("status.containerStatuses").first().and_then(|one| one.int("restartCount"));
    client.until(&format!("{CORE}/pods/short"), |_, pod| restarts(pod) >= Some(1)).await;
    assert_eq!(agent.runtime.stopped()[0], ("short".to_string(), 7));
    agent.stop().await;
}
