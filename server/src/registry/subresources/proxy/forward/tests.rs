use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;

use super::*;
use crate::call::{Peer, status_response};
use crate::request::negotiate::Accepted;

const PREFIX: &str = "/proxy";

#[test]
fn headers_of_the_hop_are_dropped() {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("connection", "close, X-Own"), ("x-own", "1"), ("te", "trailers"), ("accept", "a"), ("upgrade", "h2c")]
    {
        headers.insert(name, HeaderValue::from_static(value));
    }
    drop_hop_headers(&mut headers);
    assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    headers.insert("x-forwarded-for", HeaderValue::from_static("1.1.1.1"));
    assert_eq!(forwarded_for(&headers, IpAddr::from([2, 2, 2, 2])), "1.1.1.1, 2.2.2.2");
}

/// A target that sends these bytes to its first connection, and then echoes its input in capitals. Returns its address
/// and the head of the received request.
async fn target(response: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let head = read_head(&mut stream).await;
        stream.write_all(response.as_bytes()).await.expect("an answer");
        if response.starts_with("HTTP/1.1 101") {
            let mut buffer = [0; 64];
            let length = stream.read(&mut buffer).await.expect("bytes of the client");
            stream.write_all(&buffer[..length].to_ascii_uppercase()).await.expect("an echo");
        }
        head
    });
    (address, task)
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text").to_ascii_lowercase()
}

/// A client's end of a connection to a server that proxies everything below /proxy to the target.
fn client_of(address: SocketAddr) -> DuplexStream {
    let (client, end) = tokio::io::duplex(64 << 10);
    let service = service_fn(move |request| async move {
        let peer = Peer {
            address: "192.0.2.1:1".parse().expect("an address"),
            certificates: Arc::default(),
            watched: Default::default(),
            leave: Default::default(),
            seat: None,
        };
        let mut call = Call::from_request(request, peer, 0);
        let path = call.head.path.strip_prefix(PREFIX).unwrap_or_default().to_string();
        let response = forward(&mut call, &Target::plain(false, address, None).expect("a target"), PREFIX, &path).await;
        Ok::<_, Infallible>(response.unwrap_or_else(|status| status_response(&status, Accepted::JSON)))
    });
    tokio::spawn(server::Builder::new().serve_connection(TokioIo::new(end), service).with_upgrades());
    client
}

#[tokio::test]
async fn forwards_requests_and_responses() {
    let response = "HTTP/1.1 302 Found\r\nLocation: /there\r\nKeep-Alive: 5\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok";
    let (address, seen) = target(response).await;
    let mut client = client_of(address);
    let request = "PATCH /proxy/a%2Fb?x=1 HTTP/1.1\r\nHost: h\r\nProxy-Authorization: secret\r\nX-Mine: 2\r\nContent-Length: 0\r\n\r\n";
    client.write_all(request.as_bytes()).await.expect("a request");
    let head = read_head(&mut client).await;
    assert!(head.starts_with("http/1.1 302 found"), "{head}");
    assert!(head.contains("location: /proxy/there\r\n") && head.contains("x-own: 1"), "{head}");
    assert!(!head.contains("keep-alive"), "{head}");
    let seen = seen.await.expect("a request");
    assert!(seen.starts_with("patch /a%2fb?x=1 http/1.1\r\n"), "{seen}");
    assert!(seen.contains("x-mine: 2") && seen.contains("x-forwarded-for: 192.0.2.1\r\n"), "{seen}");
    assert!(seen.contains("host: h\r\n") && !seen.contains("secret"), "{seen}");
}

#[tokio::test]
async fn links_of_a_page_lead_through_the_proxy() {
    let response = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 18\r\n\r\n<a href=\"/x\">z</a>";
    let (address, _seen) = target(response).await;
    let mut client = client_of(address);
    client.write_all(b"GET /proxy/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.expect("a request");
    let head = read_head(&mut client).await;
    assert!(!head.contains("content-length") && !head.contains("access-control"), "{head}");
    let mut body = String::new();
    client.read_to_string(&mut body).await.expect("a body");
    assert!(body.contains(r#"<a href="/proxy/x">z</a>"#), "{body}");
}

#[tokio::test]
async fn upgraded_connections_pass_bytes_both_ways() {
    let (address, seen) =
        target("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await;
    let mut client = client_of(address);
    let request = "GET /proxy/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    client.write_all(request.as_bytes()).await.expect("a request");
    let head = read_head(&mut client).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    client.write_all(b"hello").await.expect("bytes");
    let mut echo = [0; 5];
    client.read_exact(&mut echo).await.expect("an echo");
    assert_eq!(&echo, b"HELLO");
    assert!(seen.await.expect("a request").contains("upgrade: echo\r\n"));
}

#[tokio::test]
async fn unreachable_target_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let mut client = client_of(address);
    client.write_all(b"GET /proxy/ HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("a request");
    assert!(read_head(&mut client).await.starts_with("http/1.1 503"));
}
