//! Clients that send nothing, too much, or deeply nested bodies.

use std::time::Duration;

use api::{Tree, json, tree};
use stdx::sources::SourceLimits;
use testkit::client::DEADLINE;
use testkit::{Client, Cluster, Storage};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const YAML: &str = "application/yaml";
const JSON: &str = "application/json";

async fn limited(change: impl FnOnce(&mut server::request::limits::Limits)) -> Cluster {
    let mut config = server::Config::default();
    change(&mut config.limits);
    Cluster::start_with(Storage::Embedded, config, async |_| {}).await
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let end = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut Vec::new())).await;
    end.expect("the server closes the connection in time").ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_request_are_closed() {
    let mut cluster = limited(|limits| limits.first_request_timeout = Duration::from_millis(500)).await;
    let mut speaking = cluster.client.connect().await;
    assert_eq!(speaking.get(MAPS).await.code, 200);
    closed(&mut cluster.client.dial().await).await;
    let mut half = cluster.client.dial().await;
    half.write_all(b"PRI * HTTP/2.0\r\n").await.expect("a write");
    closed(&mut half).await;
    let mut anonymous = cluster.client_as(None).dial().await;
    anonymous.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a write");
    assert!(anonymous.read(&mut [0; 1024]).await.expect("a response") > 0);
    let idle = tokio::time::Instant::now();
    closed(&mut anonymous).await;
    assert!(idle.elapsed() < Duration::from_secs(20), "earlier than by the timeout of HTTP/1.1 for a request");
    assert_eq!(speaking.get(MAPS).await.code, 200, "that of a known client stays");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_connections_of_unauthenticated_sources() {
    let few = SourceLimits { total: 10, per_source: 4 };
    let mut cluster = limited(|limits| limits.unknown_connections = few).await;
    let mut known = Vec::new();
    for _ in 0..8 {
        let mut connection = cluster.client.connect().await;
        assert_eq!(connection.get(MAPS).await.code, 200, "a known client does not count");
        known.push(connection);
    }
    let anonymous = cluster.client_as(None);
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut connection = anonymous.connect().await;
        assert_eq!(connection.get("/healthz").await.code, 200);
        held.push(connection);
    }
    let mut refused = tokio::net::TcpStream::connect(cluster.address()).await.expect("the server listens");
    closed(&mut refused).await;
    assert_eq!(known[0].get(MAPS).await.code, 200);
    drop(held);
    let again = async {
        loop {
            let mut stream = tokio::net::TcpStream::connect(cluster.address()).await.expect("the server listens");
            if tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0])).await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, again).await.expect("the seats are given back");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_sources_cannot_take_all_connections() {
    let few = SourceLimits { total: 8, per_source: 4 };
    let mut cluster = limited(|limits| limits.unknown_connections = few).await;
    let mut held = Vec::new();
    for source in [2, 3] {
        for _ in 0..4 {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind(([127, 0, 0, source], 0).into()).expect("an address");
            held.push(socket.connect(cluster.address()).await.expect("the server listens"));
        }
    }
    for client in [cluster.client.clone(), cluster.client_as(None)] {
        let mut connection = client.connect().await;
        assert_eq!(connection.get("/healthz").await.code, 200);
    }
    drop(held);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_may_be_as_large_as_they_can_be_written() {
    let mut cluster = limited(|_| ()).await;
    let client = &cluster.client;
    let most = i64::MAX;
    let mut watch = client.watch(&format!("{MAPS}?watch=true&timeoutSeconds={most}")).await;
    client.post(MAPS, &tree! { "metadata" => tree! { "name" => "m" } }).await;
    assert_eq!(watch.names(1).await, ["ADDED m"]);
    for query in ["limit", "timeoutSeconds", "resourceVersion"] {
        let path = format!("{MAPS}?{query}={}", if query == "resourceVersion" { 1 } else { most });
        assert_eq!(client.get(&path).await.code, 200, "{path}");
    }
    let account =
        tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "default" } };
    client.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pod = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{{"nodeName":"n",
            "terminationGracePeriodSeconds":{most},"containers":[{{"name":"c","image":"i"}}]}}}}"#
    );
    let pods = "/api/v1/namespaces/default/pods";
    let created = client.raw("POST", pods, &[("content-type", JSON)], pod.into_bytes()).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let path = format!("{pods}/p?gracePeriodSeconds={most}");
    let deleted = client.raw("DELETE", &path, &[], Vec::new()).await;
    let stamp = deleted.tree().str("metadata.deletionTimestamp").to_string();
    assert_eq!((deleted.code, stamp.as_str()), (200, "9999-12-31T23:59:59Z"));
    cluster.stop().await;
}

/// `[[[…]]]` around something.
fn nested(levels: usize, inner: &str) -> String {
    format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels))
}

/// Anchors with many brackets around the previous one; the last is `*a31`.
fn chained(indent: &str) -> String {
    let mut text = format!("{indent}- &a0 {}\n", nested(250, ""));
    for at in 1..32 {
        text.push_str(&format!("{indent}- &a{at} {}\n", nested(250, &format!("*a{}", at - 1))));
    }
    text
}

fn maps(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

fn revision(name: &str, data: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"{name}"}},"revision":1,"data":{data}}}"#
    )
}

/// Sends a body; a stored object can be read again completely.
async fn send(client: &Client, method: &str, path: &str, media: &str, body: String) -> u16 {
    let reply = client.raw(method, path, &[("content-type", media)], body.into_bytes()).await;
    assert!(reply.code < 500, "{method} {path}: {} {}", reply.code, reply.text());
    let name = reply.tree().str("metadata.name").to_string();
    if reply.code < 300 && !name.is_empty() {
        let stored = client.get(&format!("{REVISIONS}/{name}")).await.tree();
        assert_eq!((stored.str("kind"), stored.str("metadata.name")), ("ControllerRevision", name.as_str()));
        assert_ne!(stored.at("data"), &Tree::Null, "{name}");
    }
    reply.code
}

/// The server runs in this process: a stack that overflows ends the test.
#[tokio::test(flavor = "multi_thread")]
async fn no_body_overflows_a_stack() {
    let mut cluster = limited(|_| ()).await;
    let client = &cluster.client;
    let head = "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {name: r}\nrevision: 1\ndata:\n";
    let anchors = format!("{head}{}  - *a31\n", chained("  "));
    assert_eq!(send(client, "POST", REVISIONS, YAML, anchors.clone()).await, 400);
    let apply = "application/apply-patch+yaml";
    let path = format!("{REVISIONS}/r?fieldManager=m");
    assert_eq!(send(client, "PATCH", &path, apply, anchors).await, 400);
    let review = format!("x:\n{}kind: SelfSubjectAccessReview\nspec:\n  <<: *a31\n", chained("  "));
    assert_eq!(send(client, "POST", REVIEWS, YAML, review).await, 400);
    for levels in [300, 10_000, 1_000_000] {
        assert_eq!(send(client, "POST", REVISIONS, JSON, revision("d", &nested(levels, ""))).await, 400);
        assert_eq!(send(client, "POST", REVISIONS, YAML, format!("{head}  {}", nested(levels, ""))).await, 400);
        let open = "[".repeat(levels);
        assert_eq!(send(client, "POST", REVISIONS, JSON, open.clone()).await, 400);
        assert_eq!(send(client, "PATCH", &path, apply, open).await, 400);
    }
    // Just below the limit of the decoders: managed fields are deeper than the object itself.
    let mut stored = 0;
    for levels in 235..258 {
        for (kind, data) in [("l", nested(levels, "")), ("m", maps(levels))] {
            let name = format!("{kind}{levels}");
            let code = send(client, "POST", REVISIONS, JSON, revision(&name, &data)).await;
            stored += u32::from(code == 201);
            let name = format!("a{kind}{levels}");
            let path = format!("{REVISIONS}/{name}?fieldManager=m");
            send(client, "PATCH", &path, apply, revision(&name, &data)).await;
        }
    }
    assert!(stored > 0, "none was stored");
    deepen(client).await;
    let list = client.get(REVISIONS).await;
    assert_eq!(list.code, 200);
    let names = list.tree().list("items").iter().all(|item| !item.str("metadata.name").is_empty());
    assert!(names, "an object of the list could not be read");
    cluster.stop().await;
}

/// Patches that deepen a stored object step by step.
async fn deepen(client: &Client) {
    assert_eq!(send(client, "POST", REVISIONS, JSON, revision("p", &maps(1))).await, 201);
    let path = format!("{REVISIONS}/p");
    let copies: Vec<String> = (0..40).map(|_| r#"{"op":"copy","from":"/data","path":"/data/a"}"#.to_string()).collect();
    let json_patch = format!("[{}]", copies.join(","));
    assert_eq!(send(client, "PATCH", &path, "application/json-patch+json", json_patch).await, 422);
    for levels in [100, 250, 5000] {
        let merge = format!(r#"{{"data":{}}}"#, maps(levels));
        for media in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
            send(client, "PATCH", &path, media, merge.clone()).await;
        }
        let add = format!(r#"[{{"op":"add","path":"/data/a","value":{}}}]"#, maps(levels));
        send(client, "PATCH", &path, "application/json-patch+json", add).await;
    }
    let stored = client.get(&path).await.tree();
    assert!(!json::encode(&stored, None).is_empty() && !stored.exceeds_depth(api::tree::MAX_DEPTH));
}

/// As with Go's servers, the response is that of the path, not an empty 400.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_may_have_characters_that_need_encoding() {
    let mut cluster = limited(|_| ()).await;
    let mut stream = cluster.client.dial().await;
    let request = format!("GET {MAPS}/a<b> HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await;
    read.expect("an answer in time").ok();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(answer.contains(r#"configmaps \"a<b>\" not found"#) || answer.contains("u003c"), "{answer}");
    cluster.stop().await;
}

/// One response of a connection that stays open.
async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let read = async {
        loop {
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if let (Some((head, body)), Some(length)) = (text.split_once("\r\n\r\n"), length)
                && body.len() >= length
            {
                return head.len();
            }
            assert!(stream.read_buf(&mut bytes).await.expect("a read") > 0, "closed after {text}");
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("a response in time");
    String::from_utf8(bytes).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn later_requests_of_a_connection_may_have_characters_that_need_encoding() {
    let mut cluster = limited(|_| ()).await;
    let mut stream = cluster.client.dial().await;
    // The body looks like a request line, and must not be changed.
    let text = "GET /<a> HTTP/1.1";
    let body = format!("{{\"metadata\":{{\"name\":\"m\"}},\"data\":{{\"a\":\"{text}\"}}}}");
    let post = format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let get = |name: &str| format!("GET {MAPS}/{name} HTTP/1.1\r\nHost: x\r\n\r\n");
    // The body arrives separately, and together with the head.
    for pieces in [vec![get("m")], vec![post.clone(), body.clone()], vec![format!("{post}{body}")]] {
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await.expect("a request");
            stream.flush().await.expect("a request");
            tokio::task::yield_now().await;
        }
        let response = read_response(&mut stream).await;
        assert!(!response.starts_with("HTTP/1.1 400"), "{response}");
        for name in ["a<b>", "c`d"] {
            stream.write_all(get(name).as_bytes()).await.expect("a request");
            let response = read_response(&mut stream).await;
            assert!(response.starts_with("HTTP/1.1 404 "), "{name}: {response}");
        }
    }
    let map = cluster.client.get(&format!("{MAPS}/m")).await.tree();
    assert_eq!(map.str("data.a"), text);
    cluster.stop().await;
}
