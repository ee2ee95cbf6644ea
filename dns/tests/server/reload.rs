//! Corefiles that change, and the HTTP endpoints.

use std::sync::Arc;

use dns::message::Type;
use dns::{Config, CorefileSource, DnsHandle, HttpEndpoints};
use stdx::wait::{until_async, until_ok_await};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{FakeApi, Upstream, WAIT, config, eventually, lookup, start_with};

fn hosts(last: u8, more: &str) -> String {
    format!(". {{\nhosts /nonexistent {{\n10.0.0.{last} a.org\n}}\n{more}\n}}")
}

async fn rejected(running: &DnsHandle, want: &str) {
    let look = async || {
        let texts: Vec<String> = running.rejected().iter().map(ToString::to_string).collect();
        if texts == [want] { Ok(()) } else { Err(texts.join("; ")) }
    };
    until_ok_await(want, WAIT, look).await;
}

#[tokio::test]
async fn a_file_is_reloaded_and_mistakes_change_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("Corefile");
    std::fs::write(&path, hosts(1, "reload")).expect("a file");
    let (running, server) = start_with(config(CorefileSource::File(path.clone())), None).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.1");
    let replace = |text: &str| {
        std::fs::write(dir.path().join("new"), text).expect("a file");
        std::fs::rename(dir.path().join("new"), &path).expect("a file");
    };
    replace(&hosts(2, ""));
    eventually(server, "a.org", "NOERROR 10.0.0.2").await;
    replace(&hosts(3, "nonsense"));
    rejected(&running, "Corefile:5: unknown plugin \"nonsense\"").await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.2", "the old one is in force");
    assert!(running.metrics().contains("coredns_reload_failed_total 1"));
    replace(&hosts(4, ""));
    eventually(server, "a.org", "NOERROR 10.0.0.4").await;
    assert!(running.rejected().is_empty());
}

#[tokio::test]
async fn a_config_map_is_followed() {
    const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
    let map = |text: &str| {
        let text = text.replace('\n', "\\n").replace('"', "\\\"");
        format!(
            r#"{{"metadata":{{"namespace":"kube-system","name":"coredns","uid":"c"}},"data":{{"Corefile":"{text}"}}}}"#
        )
    };
    let api = Arc::new(FakeApi::default());
    let source =
        CorefileSource::ConfigMap { namespace: "kube-system".into(), name: "coredns".into(), otherwise: hosts(9, "") };
    let (running, server) = start_with(config(source), Some(api.cluster())).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.9", "there is no ConfigMap");
    until_async("a watch", WAIT, || api.paths().iter().any(|path| path.contains("watch="))).await;
    api.put(MAPS, &map(&hosts(1, "")));
    eventually(server, "a.org", "NOERROR 10.0.0.1").await;
    api.put(MAPS, &map(&hosts(2, "cache x {\ny\n}")));
    rejected(&running, "Corefile:6: unknown option \"y\" of plugin cache").await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.1");
    api.put(MAPS, &map(&hosts(3, "")));
    eventually(server, "a.org", "NOERROR 10.0.0.3").await;
    api.delete(MAPS, "kube-system/coredns");
    eventually(server, "a.org", "NOERROR 10.0.0.9").await;
    let paths = api.paths();
    assert!(paths.iter().all(|path| path.contains("fieldSelector=metadata.name%3Dcoredns")), "{paths:?}");
}

#[tokio::test]
async fn name_servers_and_hosts_files_are_followed() {
    let (one, two) = (Upstream::with(1).await, Upstream::with(2).await);
    let dir = tempfile::tempdir().expect("a directory");
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "10.0.0.1 a.org\n").expect("a file");
    let text = format!(". {{\nhosts {} {{\nfallthrough\n}}\nforward . {}\n}}", hosts.display(), one.address);
    let (_running, server) = start_with(config(CorefileSource::Text(text)), None).await;
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.1");
    std::fs::write(&hosts, "10.0.0.2 a.org\n").expect("a file");
    eventually(server, "a.org", "NOERROR 10.0.0.2").await;
    assert_eq!(lookup(server, "b.org", Type::A).await, "NOERROR 10.9.9.1");
    drop(two);
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("a response");
    text
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("Corefile");
    let endpoints = "health 127.0.0.1:0 {\nlameduck 1ms\n}\nready 127.0.0.1:0\nprometheus 127.0.0.1:0";
    std::fs::write(&path, hosts(1, endpoints)).expect("a file");
    let config = Config { http: HttpEndpoints::Corefile, ..config(CorefileSource::File(path.clone())) };
    let (running, server) = start_with(config, None).await;
    lookup(server, "a.org", Type::A).await;
    let [http] = running.http_addresses()[..] else { panic!("one address is shared") };
    for (path, status, body) in [
        ("/health", "200 OK", "OK"),
        ("/ready", "200 OK", "OK"),
        ("/metrics", "200 OK", "coredns_dns_requests_total{"),
        ("/other", "404 Not Found", "not found"),
    ] {
        let response = get(http, path).await;
        assert!(response.contains(status) && response.contains(body), "{path}: {response}");
    }
    running.drain().await;
    assert!(get(http, "/ready").await.contains("503 Service Unavailable"));
    assert!(get(http, "/health").await.contains("200 OK"));
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.1", "it still answers");
}

#[tokio::test]
async fn ports_are_opened_and_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("Corefile");
    let free = || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.local_addr().expect("an address").port()
    };
    let other = free();
    std::fs::write(&path, hosts(1, "")).expect("a file");
    let (running, server) = start_with(config(CorefileSource::File(path.clone())), None).await;
    let with_other = format!("{}\n.:{other} {{\nhosts /nonexistent {{\n10.0.0.8 a.org\n}}\n}}", hosts(1, ""));
    std::fs::write(&path, with_other).expect("a file");
    until_async("a second port", WAIT, || running.addresses().len() == 2).await;
    assert_eq!(lookup(([127, 0, 0, 1], other).into(), "a.org", Type::A).await, "NOERROR 10.0.0.8");
    assert_eq!(lookup(server, "a.org", Type::A).await, "NOERROR 10.0.0.1");
    std::fs::write(&path, hosts(2, "")).expect("a file");
    eventually(server, "a.org", "NOERROR 10.0.0.2").await;
    assert_eq!(running.addresses(), [server]);
}
