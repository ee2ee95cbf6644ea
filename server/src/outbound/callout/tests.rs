//! A client against servers that misbehave.

use std::time::Duration;

use stdx::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Serves each connection's requests with these texts, one after the other, then closes it.
async fn serve(responses: Vec<&'static str>) -> (Url, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/x", listener.local_addr().expect("an address"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let received = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, peer)) = listener.accept().await {
            for response in &responses {
                let mut buffer = vec![0; 4096];
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                if length == 0 {
                    break;
                }
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                received.lock().push(format!("{} {text}", peer.port()));
                let _ = stream.write_all(response.as_bytes()).await;
            }
            if responses.is_empty() {
                std::future::pending::<()>().await;
            }
        }
    });
    (Url::parse(&url).expect("a URL"), seen)
}

fn client() -> Client {
    Client::new(&Trust::System, None).expect("a client")
}

const SECOND: Duration = Duration::from_secs(5);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

#[tokio::test]
async fn reuses_a_connection_and_replaces_a_closed_one() {
    let (url, seen) = serve(vec![OK, OK]).await;
    let client = client().with_credentials(Credentials::Bearer("t".into()));
    for _ in 0..3 {
        assert_eq!(client.post_json(&url, b"{}".to_vec(), SECOND).await.expect("an answer").body, "{}");
    }
    let seen = seen.lock().clone();
    let ports: Vec<&str> = seen.iter().filter_map(|text| text.split(' ').next()).collect();
    assert_eq!(ports.len(), 3);
    assert!(ports[0] == ports[1] && ports[1] != ports[2], "{ports:?}");
    assert!(seen[0].contains("authorization: Bearer t\r\n") && seen[0].contains("POST /x HTTP/1.1"), "{}", seen[0]);
}

#[tokio::test]
async fn does_not_follow_redirects() {
    let (url, seen) = serve(vec!["HTTP/1.1 302 Found\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n"]).await;
    let response = client().get(&url, SECOND).await.expect("an answer");
    assert!(!response.is_success() && response.code == 302);
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test]
async fn reports_errors() {
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
    let cases = [(vec![], 300, "context deadline exceeded"), (vec![""], 5000, "EOF"), (vec![endless], 5000, "")];
    for (responses, millis, want) in cases {
        let (url, _) = serve(responses).await;
        let error = client().get(&url, Duration::from_millis(millis)).await.expect_err("no answer");
        assert!(error.to_string().starts_with(&format!("Get \"{url}\": ")), "{error}");
        assert!(error.to_string().contains(want), "{error}");
    }
    let refused = Url::parse("https://127.0.0.1:1/x").expect("a URL");
    let error = client().post_json(&refused, Vec::new(), SECOND).await.expect_err("no server listens");
    assert_eq!(error.to_string(), "Post \"https://127.0.0.1:1/x\": dial tcp 127.0.0.1:1: connect: connection refused");
}

#[tokio::test]
async fn rejects_large_responses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = Url::parse(&format!("http://{}/", listener.local_addr().expect("an address"))).expect("a URL");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n").await;
        while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
    });
    let error = client().get(&url, SECOND).await.expect_err("too much");
    assert!(error.to_string().contains("larger than 3145728 bytes"), "{error}");
}
