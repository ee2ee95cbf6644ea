//! Compression and WebSocket for clients of many kinds.

use std::io::Read;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Server, config_map, request};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An address of this machine that is not the loopback.
fn outward() -> std::net::IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("192.0.2.1:9").expect("the machine has a way out");
    socket.local_addr().expect("an address").ip()
}

#[tokio::test]
async fn large_responses_are_compressed_for_remote_clients() {
    let server = Server::start_with(&["--bind-address", "0.0.0.0"]);
    let mut local = server.client().await;
    for n in 0..3 {
        let (code, _) = local.call("POST", MAPS, &config_map(&format!("m{n}"), &"x".repeat(60_000))).await.expect("ok");
        assert_eq!(code, 201);
    }
    // Other clients write too: both lists are of the same revision.
    let (_, now) = local.call("GET", MAPS, "").await.expect("an answer");
    let now = String::from_utf8_lossy(&now);
    let revision = now.split("\"resourceVersion\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a list");
    let list = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let (_, plain) = local.call("GET", &list, "").await.expect("an answer");
    let ask = |path: &str| {
        let mut request = request("GET", path, "");
        request.headers_mut().insert("accept-encoding", "gzip".parse().expect("a value"));
        request
    };
    let near = local.send(ask(&list)).await.expect("an answer");
    assert!(!near.headers().contains_key("content-encoding"), "the loopback needs no gzip");
    near.into_body().collect().await.expect("a body");
    let mut far = server.client_at(outward()).await;
    let small = far.send(ask("/api")).await.expect("an answer");
    assert!(!small.headers().contains_key("content-encoding"), "small answers need no gzip");
    small.into_body().collect().await.expect("a body");
    let answer = far.send(ask(&list)).await.expect("an answer");
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let packed = answer.into_body().collect().await.expect("a body").to_bytes();
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).expect("gzip");
    assert!(packed.len() < plain.len() / 10 && unpacked == plain);
}

#[tokio::test]
async fn watches_work_over_websocket() {
    let server = Server::start();
    let mut socket = server.tls(b"http/1.1").await;
    let head = format!(
        "GET {MAPS}?watch=1&fieldSelector=metadata.name%3Dw HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.expect("a request");
    let mut seen = Vec::new();
    let mut wrote = false;
    while !String::from_utf8_lossy(&seen).contains("\"type\":\"DELETED\"") {
        let mut buffer = [0; 4096];
        let read = tokio::time::timeout(std::time::Duration::from_secs(20), socket.read(&mut buffer));
        let read = read.await.expect("the event comes in time").expect("bytes");
        assert!(read > 0, "the watch ended after {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..read]);
        if !wrote && seen.windows(4).any(|window| window == b"\r\n\r\n") {
            wrote = true;
            let mut client = server.client().await;
            client.call("POST", MAPS, &config_map("w", "v")).await.expect("an answer");
            client.call("DELETE", &format!("{MAPS}/w"), "").await.expect("an answer");
        }
    }
    let text = String::from_utf8_lossy(&seen);
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    // The accept key is that of the example in RFC 6455.
    assert!(text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text}");
    assert!(text.contains("{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\""), "{text}");
}
