//! From a client through the API server to a kubelet and back: logs, commands, ports, and authorization.

mod stand_in;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{Tree, json, list, tree};
use bytes::Bytes;
use cluster::component::follow::FileFollower;
use cluster::control_plane::in_process::LocalClients;
use cluster::node::ports::{self, Access, Listeners};
use cluster::pki;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubelet::Config;
use kubelet::config::Serving;
use kubelet::server::{KubeletServer, Settings};
use streaming::port_forward::{self, Forwarder};
use streaming::remote_command::{self, CommandResult, Options, RemoteCommand};
use streaming::{Transport, agreed, request_upgrade};
use testkit::{Client, Cluster};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

use stand_in::{Agent, StandIn};

const NODE: &str = "n1";
const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const UID: &str = "11111111-2222-3333-4444-555555555555";
const POD: &str = "/api/v1/namespaces/default/pods/p";
const LINE: &str = "2026-01-02T03:04:05.000000001Z stdout F";

/// A server, a node with its kubelet, and a pod that runs there.
struct Scene {
    cluster: Cluster,
    runtime: Arc<StandIn>,
    /// The ports for TLS, for reading, and for health.
    ports: [Option<SocketAddr>; 3],
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

async fn start(features: &[&str]) -> Scene {
    let cluster = Cluster::start(testkit::Storage::Embedded).await;
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("0.log");
    std::fs::write(&log, format!("{LINE} one\n{LINE} two\n")).expect("a log");
    let runtime = StandIn::start(log).await;
    let pod = make(&cluster.client).await;
    let agent = Arc::new(Agent { runtime: runtime.clone(), pod });
    let (stop, stopped) = watch::channel(false);
    let node = Arc::new(KubeletServer::new(agent, Settings::default()));
    let (config, client) = agent_config(&cluster);
    let listeners = Listeners::bind(&config, false).await.expect("ports");
    let ports = [listeners.secure(), listeners.read_only(), listeners.health()];
    let serving = ports::serving(&config, LOOPBACK).expect("a certificate");
    let access = Access::of(&config, &client);
    ports::serve(listeners, serving, access, node, &stopped, &mut FileFollower::default()).expect("ports");
    let binding = cluster::control_plane::addons::kubelet_api_admin();
    let created = cluster.client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    assert_eq!(created.code, 201);
    let port = ports[0].expect("a port").port();
    show_node(&cluster.client, port, features).await;
    Scene { cluster, runtime, ports, _stop: stop, _dir: dir }
}

fn agent_config(cluster: &Cluster) -> (Config, client::Client) {
    let client =
        LocalClients::new(cluster.server()).client("kubelet", format!("system:node:{NODE}"), &["system:nodes"]);
    let serving = Serving {
        address: LOOPBACK,
        healthz_port: free_port(),
        client_ca_file: Some(cluster.pki().dir().join("ca.crt")),
        ..Serving::default()
    };
    let config = Config {
        node_name: NODE.to_string(),
        port: free_port(),
        read_only_port: free_port(),
        serving,
        ..Config::default()
    };
    (config, client)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((LOOPBACK, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The pod of the kubelet: its status is ahead of the server's.
async fn make(client: &Client) -> Tree {
    super::service_account(client).await;
    let mut pod = super::pod("p");
    pod.child("spec").set("nodeName", NODE);
    let created = client.post("/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let mut pod = created.tree();
    pod.child("metadata").set("uid", UID);
    let id = format!("standin://{}", stand_in::CONTAINER);
    let status = tree! { "name" => "c", "containerID" => id, "state" => tree! { "running" => tree! {} } };
    pod.child("status").set("containerStatuses", list![status]);
    pod
}

async fn show_node(client: &Client, port: u16, features: &[&str]) {
    let node = tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => tree! { "name" => NODE } };
    assert_eq!(client.post("/api/v1/nodes", &node).await.code, 201);
    let status = tree! { "status" => tree! {
        "addresses" => list![tree! { "type" => "InternalIP", "address" => "127.0.0.1" }],
        "daemonEndpoints" => tree! { "kubeletEndpoint" => tree! { "Port" => i64::from(port) } },
        "declaredFeatures" => features.iter().map(|name| Tree::from(*name)).collect::<Vec<_>>(),
    } };
    let text = String::from_utf8(json::encode(&status, None)).expect("text");
    let shown = client.patch(&format!("/api/v1/nodes/{NODE}/status"), "merge", &text).await;
    assert_eq!(shown.code, 200, "{}", shown.text());
}

impl Scene {
    /// An upgraded connection to a place of the API, and the protocol that was agreed on.
    async fn upgrade(
        &self,
        carrier: Transport,
        protocols: &[&str],
        place: &str,
    ) -> Result<(TokioIo<hyper::upgrade::Upgraded>, String), String> {
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = format!("{POD}/{place}").parse().expect("a place");
        if carrier == Transport::Spdy {
            *request.method_mut() = http::Method::POST;
        }
        request.headers_mut().insert("host", http::HeaderValue::from_static("tiphys"));
        request_upgrade(&mut request, carrier, protocols);
        let asked = request.headers().clone();
        let stream = self.cluster.client.dial().await;
        let mut response = http_client::send_once(stream, request).await.expect("an answer");
        match agreed(&asked, &response, carrier) {
            Ok(protocol) => Ok((TokioIo::new(hyper::upgrade::on(&mut response).await.expect("an upgrade")), protocol)),
            Err(_) => Err(text(response).await),
        }
    }

    async fn command(&self, carrier: Transport, protocol: &str, place: &str) -> RemoteCommand {
        let (io, protocol) = self.upgrade(carrier, &[protocol], place).await.expect("an upgrade");
        let options = Options { stdin: true, stdout: true, ..Options::default() };
        remote_command::connect(io, carrier, &protocol, options).await.expect("streams")
    }
}

async fn text(response: http::Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(testkit::client::DEADLINE, future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// All bytes that the server sends on a connection that requests a log over WebSocket.
async fn log_over_websocket(client: &Client, protocol: &str) -> String {
    let mut stream = client.dial().await;
    let request = format!(
        "GET {POD}/log HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut all = Vec::new();
    let end = tokio::time::timeout(testkit::client::DEADLINE, stream.read_to_end(&mut all)).await;
    end.expect("the log ends").ok();
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_sent_over_websocket() {
    let scene = start(&[]).await;
    let client = &scene.cluster.client;
    let plain = log_over_websocket(client, "binary.k8s.io").await;
    assert!(plain.starts_with("HTTP/1.1 101 "), "{plain}");
    assert!(plain.contains("sec-websocket-protocol: binary.k8s.io\r\n"), "{plain}");
    assert!(plain.contains("one\ntwo\n"), "{plain}");
    let encoded = log_over_websocket(client, "base64.binary.k8s.io").await;
    assert!(encoded.contains(&api::base64::encode(b"one\ntwo\n")), "{encoded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_from_their_end_and_followed() {
    let scene = start(&[]).await;
    let client = &scene.cluster.client;
    let log = client.get(&format!("{POD}/log")).await;
    assert_eq!((log.code, log.text().as_str()), (200, "one\ntwo\n"));
    assert_eq!(log.headers["content-type"], "text/plain");
    let last = client.get(&format!("{POD}/log?tailLines=1&timestamps=true&container=c")).await;
    assert_eq!(last.text(), "2026-01-02T03:04:05.000000001Z two\n");
    assert_eq!(client.get(&format!("{POD}/log?limitBytes=5")).await.text(), "one\nt");
    let none = client.get(&format!("{POD}/log?previous=true")).await;
    assert_eq!(none.code, 400);
    assert_eq!(none.tree().str("message"), r#"previous terminated container "c" in pod "p" not found"#);

    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = format!("{POD}/log?follow=true&tailLines=0").parse().expect("a place");
    request.headers_mut().insert("host", http::HeaderValue::from_static("tiphys"));
    let response = http_client::send_once(client.dial().await, request).await.expect("an answer");
    let mut body = response.into_body();
    let mut file = std::fs::OpenOptions::new().append(true).open(&scene.runtime.log).expect("the log");
    write!(file, "{LINE} three\n{LINE} half").expect("a line");
    let piece = soon("a line", body.frame()).await.expect("a piece").expect("a piece");
    assert_eq!(piece.into_data().expect("data"), "three\n");
    // The rest of the line goes to the renamed file, the next line to a new file.
    std::fs::rename(&scene.runtime.log, scene.runtime.log.with_extension("old")).expect("another name");
    writeln!(file, " four").expect("the rest");
    let piece = soon("the rest", body.frame()).await.expect("a piece").expect("a piece");
    assert_eq!(piece.into_data().expect("data"), "half four\n");
    std::fs::write(&scene.runtime.log, format!("{LINE} five\n")).expect("a new log");
    let piece = soon("the new file", body.frame()).await.expect("a piece").expect("a piece");
    assert_eq!(piece.into_data().expect("data"), "five\n");
    scene.runtime.is_running.store(false, Ordering::SeqCst);
    assert!(soon("the end", body.frame()).await.is_none(), "the container has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_by_every_protocol_and_both_ways() {
    for features in [&[][..], &["ExtendWebSocketsToKubelet"]] {
        let scene = start(features).await;
        for (carrier, protocol) in [
            (Transport::WebSocket, "v5.channel.k8s.io"),
            (Transport::WebSocket, "v4.channel.k8s.io"),
            (Transport::Spdy, "v4.channel.k8s.io"),
        ] {
            for verb in ["exec", "attach"] {
                let place = format!("{verb}?stdin=true&stdout=true&command=a%20b&command=%26");
                let remote = scene.command(carrier, protocol, &place).await;
                let (mut stdin, mut stdout) = (remote.stdin.expect("stdin"), remote.stdout.expect("stdout"));
                stdin.write_all(b"hello").await.expect("input");
                let mut out = [0; 5];
                soon("output", stdout.read_exact(&mut out)).await.expect("output");
                assert_eq!(&out, b"hello", "{verb} {protocol}");
                if protocol == "v4.channel.k8s.io" && carrier == Transport::WebSocket {
                    // This protocol cannot signal the end of the input.
                    continue;
                }
                stdin.shutdown().await.expect("the end of input");
                let message = "command terminated with non-zero exit code: exit status 3".to_string();
                let ending = soon("the ending", remote.ending).await.expect("an ending");
                assert_eq!(ending, CommandResult::ExitCode { code: 3, message }, "{verb} {protocol}");
            }
        }
        let asked = scene.runtime.asked.lock().take().expect("a command");
        assert_eq!((asked.container_id.as_str(), asked.cmd), ("c1", vec!["a b".to_string(), "&".to_string()]));
        assert!(asked.stdin && asked.stdout && !asked.stderr && !asked.tty);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_commands_are_reported() {
    let scene = start(&[]).await;
    let client = &scene.cluster.client;
    let plain = client.get(&format!("{POD}/exec?command=ls&stdout=true")).await;
    assert_eq!((plain.code, plain.tree().str("message")), (400, "Upgrade request required"));
    scene.runtime.is_running.store(false, Ordering::SeqCst);
    let place = "exec?command=ls&stdin=true&stdout=true";
    let refused = scene.upgrade(Transport::Spdy, &["v4.channel.k8s.io"], place).await.err();
    assert_eq!(refused.as_deref(), Some("container not found (\"c\")\n"));
    let remote = scene.command(Transport::WebSocket, "v5.channel.k8s.io", place).await;
    let ending = soon("the ending", remote.ending).await.expect("an ending");
    let why = "Internal error occurred: unable to upgrade connection: container not found (\"c\")";
    assert_eq!(ending, CommandResult::Failed(why.to_string()));
    // The container has exited.
    show_port(client, 1).await;
    let refused = scene.upgrade(Transport::Spdy, &["v4.channel.k8s.io"], place).await.err().unwrap_or_default();
    assert!(refused.contains("error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused"), "{refused}");
    let log = client.get(&format!("{POD}/log")).await;
    let want =
        "Get \"https://127.0.0.1:1/containerLogs/default/p/c\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!((log.code, log.tree().str("message")), (500, want));
}

async fn show_port(client: &Client, port: u16) {
    let change = format!(r#"{{"status":{{"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}"#);
    assert_eq!(client.patch(&format!("/api/v1/nodes/{NODE}/status"), "merge", &change).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded_over_spdy_and_its_tunnel() {
    for features in [&[][..], &["ExtendWebSocketsToKubelet"]] {
        let scene = start(features).await;
        for (carrier, protocols) in
            [(Transport::Spdy, port_forward::SPDY_PREFERRED), (Transport::WebSocket, port_forward::TUNNEL_PREFERRED)]
        {
            let (io, _) = scene.upgrade(carrier, protocols, "portforward").await.expect("an upgrade");
            let forwarder = Forwarder::new(io, carrier);
            let (mut data, outcome) = forwarder.connect(80).await.expect("a port").split();
            data.write_all(b"hello").await.expect("bytes");
            data.shutdown().await.expect("an end");
            let mut got = String::new();
            soon("an echo", data.read_to_string(&mut got)).await.expect("an echo");
            assert_eq!(got, "port 80: hello", "{carrier:?}");
            assert!(soon("an outcome", outcome).await.is_ok());
            let (_data, outcome) = forwarder.connect(1).await.expect("a port").split();
            let error = soon("an outcome", outcome).await.expect_err("a closed port");
            assert_eq!(error.to_string(), "connection refused", "{carrier:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_authorizes_requests() {
    let scene = start(&[]).await;
    let [secure, read_only, health] = scene.ports;
    let secure = secure.expect("a port");
    let pki = scene.cluster.pki();
    let check = async |user: Option<&str>, path: &str, code: u16, words: &str| {
        let pair = user.map(|user| pki.read(user).expect("a pair").expect("a pair"));
        let got = asked(secure, pair.as_ref(), None, path).await;
        assert_eq!((got.0, got.1.contains(words)), (code, true), "{user:?} {path}: {}", got.1);
    };
    check(None, "/pods", 401, "Unauthorized").await;
    check(Some("admin"), "/pods", 200, "\"PodList\"").await;
    check(Some("apiserver-kubelet-client"), "/configz", 200, "kubeletconfig").await;
    check(Some("apiserver-kubelet-client"), "/metrics", 200, "kubelet_running_pods 1").await;
    check(Some("admin"), "/nothing", 404, "404 page not found").await;
    check(Some("admin"), "/debug/pprof/heap", 405, "profiling endpoint is disabled").await;
    let no = "Forbidden (user=system:kube-scheduler, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    check(Some("scheduler"), "/pods", 403, no).await;
    let proxied = scene.cluster.client.get(&format!("/api/v1/nodes/{NODE}/proxy/pods")).await;
    assert_eq!((proxied.code, proxied.tree().str("kind")), (200, "PodList"));
    for (port, path, code) in [
        (health, "/healthz", 200),
        (health, "/pods", 404),
        (read_only, "/pods", 200),
        (read_only, "/containerLogs/default/p/c", 404),
    ] {
        let stream = tokio::net::TcpStream::connect(port.expect("a port")).await.expect("it listens");
        let request = Request::get(path).header("host", "n").body(Full::<Bytes>::default()).expect("a request");
        assert_eq!(http_client::send_once(stream, request).await.expect("an answer").status(), code, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_delegates_authentication_and_authorization() {
    let scene = start(&[]).await;
    let client = &scene.cluster.client;
    let at = scene.ports[0].expect("a port");
    let core = "/api/v1/namespaces/default/serviceaccounts";
    let mut tokens = Vec::new();
    for name in ["allowed", "other"] {
        let created = client.post(core, &tree! { "metadata" => tree! { "name" => name } }).await;
        assert_eq!(created.code, 201, "{:?}", created.tree());
        let request = tree! { "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest" };
        let answer = client.post(&format!("{core}/{name}/token"), &request).await.tree();
        tokens.push(answer.str("status.token").to_string());
    }
    let subject = tree! { "kind" => "ServiceAccount", "name" => "allowed", "namespace" => "default" };
    let role = tree! { "apiGroup" => "rbac.authorization.k8s.io", "kind" => "ClusterRole",
    "name" => "system:kubelet-api-admin" };
    let binding = tree! { "metadata" => tree! { "name" => "robot" }, "roleRef" => role, "subjects" => list![subject] };
    let created = client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    assert_eq!(created.code, 201, "{:?}", created.tree());
    let no =
        "Forbidden (user=system:serviceaccount:default:other, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    for (token, code, words) in
        [(tokens[0].as_str(), 200, "\"PodList\""), (&tokens[1], 403, no), ("unknown", 401, "Unauthorized")]
    {
        let got = asked(at, None, Some(token), "/pods").await;
        assert_eq!((got.0, got.1.contains(words)), (code, true), "{}", got.1);
    }
}

/// Sends a request to a kubelet directly, without verifying its certificate.
async fn asked(
    at: SocketAddr,
    user: Option<&pki::CertificateAndKey>,
    token: Option<&str>,
    path: &str,
) -> (u16, String) {
    let identity = user
        .map(|pair| http_client::Identity::pem(pair.certificate.as_bytes(), pair.key.as_bytes()).expect("an identity"));
    let tls = http_client::tls::config(&http_client::Trust::InsecureSkipVerify, identity.as_ref(), &[b"http/1.1"])
        .expect("TLS");
    let address = http_client::Address::new(true, &at.ip().to_string(), at.port());
    let stream = http_client::connect(&address, &Arc::new(tls)).await.expect("it listens");
    let mut request = Request::get(path).header("host", "n");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Full::<Bytes>::default()).expect("a request");
    let response = http_client::send_once(stream, request).await.expect("an answer");
    (response.status().as_u16(), text(response).await)
}
