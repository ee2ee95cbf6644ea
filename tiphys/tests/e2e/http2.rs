//! Many watches on one HTTP/2 connection.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::support::{Server, config_map, request};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCHES: usize = 2000;

/// Reads events until the marker has been seen.
async fn until(body: &mut Incoming, marker: &str) {
    let mut seen = Vec::new();
    loop {
        let frame = body.frame().await.expect("the watch goes on").expect("a frame");
        let Ok(data) = frame.into_data() else { continue };
        seen.extend_from_slice(&data);
        if memchr_find(&seen, marker.as_bytes()) {
            return;
        }
        // Only the end can hold a marker that is not complete yet.
        let keep = seen.len().saturating_sub(4096);
        seen.drain(..keep);
    }
}

fn memchr_find(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_watch_holds_up_none_of_two_thousand_on_its_connection() {
    let server = Server::start();
    let mut sender = server.http2().await;
    let mut watches = Vec::with_capacity(WATCHES);
    for _ in 0..WATCHES {
        sender.ready().await.expect("a stream is free");
        let path = format!("{MAPS}?watch=1&timeoutSeconds=300");
        let response = sender.send_request(request("GET", &path, "")).await.expect("a watch");
        assert_eq!(response.status(), 200);
        watches.push(response.into_body());
    }
    // This one is never read: its window fills up and stays full.
    let stalled = watches.pop().expect("a watch");
    let mut client = server.client().await;
    for n in 0..40 {
        let value = "x".repeat(4096);
        let (code, _) = client.call("POST", MAPS, &config_map(&format!("a{n}"), &value)).await.expect("an answer");
        assert_eq!(code, 201);
    }
    client.call("POST", MAPS, &config_map("the-last", "v")).await.expect("an answer");
    let readers: Vec<_> = watches
        .into_iter()
        .map(|mut body| tokio::spawn(async move { until(&mut body, "\"name\":\"the-last\"").await }))
        .collect();
    let all = async {
        for reader in readers {
            reader.await.expect("the watch sees the last event");
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("all watches but the stalled one get everything");
    // And the connection still answers.
    sender.ready().await.expect("a stream is free");
    let response = sender.send_request(request("GET", "/healthz", "")).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(body, Bytes::from_static(b"ok"));
    drop(stalled);
}
