//! Audit events to a webhook that is unreachable at first.

use std::time::Duration;

use api::{Tree, json};
use server::audit::batch::Batch;
use server::audit::{Delivery, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::audited_with;

/// Reads one request and responds with a code; returns the body.
async fn answer(stream: &mut TcpStream, code: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.trim().parse().ok()?;
    while bytes.len() < end + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    stream.write_all(format!("HTTP/1.1 {code} x\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.ok()?;
    Some(bytes[end..end + length].to_vec())
}

/// The first request gets 503, later ones 200; accepted bodies are sent to the channel.
async fn webhook() -> (u16, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut code = "503";
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Some(body) = answer(&mut stream, code).await {
                if code == "200" {
                    sender.send(body).expect("the test listens");
                }
                code = "200";
            }
        }
    });
    (port, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_webhooks_get_batches_and_may_be_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let (port, mut bodies) = webhook().await;
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: a\n  cluster: {{server: 'http://127.0.0.1:{port}/audit'}}\nusers: []\ncontexts:\n- name: a\n  context: {{cluster: a}}\ncurrent-context: a\n"
    );
    std::fs::write(dir.path().join("webhook.yaml"), kubeconfig).expect("a file");
    let batch = Batch { max_wait: Duration::from_millis(20), throttle: false, ..Batch::for_webhook() };
    let settings = Settings {
        webhook_config_file: Some(dir.path().join("webhook.yaml")),
        webhook: Delivery { batch, ..Delivery::for_webhook() },
        initial_backoff: Duration::from_millis(1),
        ..Settings::default()
    };
    let mut cluster = audited_with(dir.path(), settings).await;
    cluster.client.get("/api/v1/namespaces/default").await;
    let mut stages = Vec::new();
    while !stages.contains(&"ResponseComplete".to_string()) {
        let body = tokio::time::timeout(testkit::client::DEADLINE, bodies.recv()).await.expect("events in time");
        let list: Tree = json::decode(&body.expect("a list")).expect("JSON");
        assert_eq!((list.str("kind"), list.str("apiVersion")), ("EventList", "audit.k8s.io/v1"));
        let mine = list.list("items").iter().filter(|event| event.str("objectRef.name") == "default");
        stages.extend(mine.map(|event| event.str("stage").to_string()));
    }
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    cluster.stop().await;
}
