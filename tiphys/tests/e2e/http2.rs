//! Many watches on a few HTTP/2 connections.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::support::{Server, config_map, request};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONNECTIONS: usize = 25;
/// Fewer than the streams that a connection may have.
const WATCHES_EACH: usize = 80;

/// The events are larger than a stream's window.
const MAPS_MADE: usize = 20;
const VALUE_BYTES: usize = 4096;

/// Reads this many events; an event is a line.
async fn read_events(body: &mut Incoming, events: usize) {
    let mut seen = 0;
    while seen < events {
        let frame = body.frame().await.expect("the watch goes on").expect("a frame");
        let Ok(data) = frame.into_data() else { continue };
        seen += data.iter().filter(|byte| **byte == b'\n').count();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_watches_block_no_other_watches() {
    let server = Server::start();
    let mut senders = Vec::with_capacity(CONNECTIONS);
    let mut watches = Vec::with_capacity(CONNECTIONS * WATCHES_EACH);
    for _ in 0..CONNECTIONS {
        let mut sender = server.http2().await;
        for _ in 0..WATCHES_EACH {
            sender.ready().await.expect("a stream is free");
            let path = format!("{MAPS}?watch=1&timeoutSeconds=300");
            let response = sender.send_request(request("GET", &path, "")).await.expect("a watch");
            assert_eq!(response.status(), 200);
            watches.push(response.into_body());
        }
        senders.push(sender);
    }
    // This one is never read: its window fills up and stays full.
    let stalled = watches.pop().expect("a watch");
    let mut client = server.client().await;
    for n in 0..MAPS_MADE {
        let value = "x".repeat(VALUE_BYTES);
        let (code, _) = client.call("POST", MAPS, &config_map(&format!("a{n}"), &value)).await.expect("an answer");
        assert_eq!(code, 201);
    }
    let readers: Vec<_> = watches
        .into_iter()
        .map(|mut body| tokio::spawn(async move { read_events(&mut body, MAPS_MADE).await }))
        .collect();
    let all = async {
        for reader in readers {
            reader.await.expect("the watch sees the last event");
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("all watches but the stalled one get everything");
    // Its connection, the last one, still works.
    let mut sender = senders.pop().expect("a connection");
    sender.ready().await.expect("a stream is free");
    let response = sender.send_request(request("GET", "/healthz", "")).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(body, Bytes::from_static(b"ok"));
    drop(stalled);
}
