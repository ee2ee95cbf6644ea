//! API aggregation against a real extension API server, in a network namespace of the test: the address of a backend is
//! never a loopback address. It needs root.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{Tree, list, tree};
use bytes::Bytes;
use cluster::pki::{CertificateAndKey, Subject};
use http::request::Parts;
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use http_client::tls;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use network::netlink::Rtnl;
use stdx::wait::until_await;
use testkit::{Client, Cluster, ConnectionNumber, Https, plain};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.agg.example.com";
const GROUP_VERSION: &str = "/apis/agg.example.com/v1";
/// The address of the backend: on lo, no packet leaves the namespace.
pub(crate) const ADDRESS: &str = "192.0.2.1";

const RESOURCES: &str = r#"{"kind":"APIResourceList","groupVersion":"agg.example.com/v1","resources":[
    {"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","create"]}]}"#;

const OPENAPI_V2: &str = r##"{"swagger":"2.0","info":{"title":"agg","version":"v1"},
    "paths":{"/apis/agg.example.com/v1/echo":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/Echo"}}}}},"/apis/apps/v1/stolen":{}},
    "definitions":{"Echo":{"type":"object"},"Unused":{"type":"object"}}}"##;
const OPENAPI_V3: &str =
    r#"{"paths":{"apis/agg.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/agg.example.com/v1?hash=ABC"}}}"#;
const DOCUMENT_V3: &str =
    r#"{"openapi":"3.0.0","info":{"title":"agg","version":"v1"},"paths":{"/apis/agg.example.com/v1/echo":{}}}"#;

/// Runs a test in a namespace: its threads and sockets stay there.
pub(crate) fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    let run = move || {
        network::ns::unshare().expect("this test needs root");
        let mut rtnl = Rtnl::open().expect("netlink");
        let lo = rtnl.link("lo").expect("an answer").expect("lo").index;
        rtnl.set_up(lo).expect("up");
        rtnl.add_address(lo, format!("{ADDRESS}/32").parse().expect("an address")).expect("added");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test());
    };
    std::thread::spawn(run).join().expect("the test");
}

/// An extension API server, and whether it is broken.
struct Backend {
    https: Https,
    ca: CertificateAndKey,
    is_broken: Arc<AtomicBool>,
    /// The backend has no OpenAPI v3.
    is_old: Arc<AtomicBool>,
}

impl Backend {
    async fn start(cluster: &Cluster) -> Backend {
        Backend::start_with(cluster, &[tls::HTTP2, tls::HTTP1]).await
    }

    async fn start_with(cluster: &Cluster, alpn: &[&[u8]]) -> Backend {
        let pki = cluster.pki();
        let ca = pki.read("ca").expect("a CA").expect("a CA");
        let subject = Subject {
            file: "backend".to_string(),
            ca: "ca",
            common_name: "backend".to_string(),
            organization: String::new(),
            names: vec!["agg.default.svc".to_string()],
            addresses: Vec::new(),
        };
        let pair = pki.issue(&ca, &subject).expect("a certificate");
        let is_broken = Arc::new(AtomicBool::new(false));
        let is_old = Arc::new(AtomicBool::new(false));
        let (broken, old) = (is_broken.clone(), is_old.clone());
        let respond = move |parts: &Parts, body: &[u8]| {
            let is_missing = old.load(Ordering::Relaxed) && parts.uri.path().starts_with("/openapi/v3");
            Some(match broken.load(Ordering::Relaxed) {
                true => plain(500, "broken"),
                false if is_missing => plain(404, "unknown here"),
                false => respond(parts, body),
            })
        };
        Backend { https: Https::serve_protocols(&pair, alpn, respond).await, ca, is_broken, is_old }
    }
}

fn respond(parts: &Parts, body: &[u8]) -> Response<Full<Bytes>> {
    match parts.uri.path() {
        GROUP_VERSION => plain(200, RESOURCES),
        "/openapi/v2" => plain(200, OPENAPI_V2),
        "/openapi/v3" => plain(200, OPENAPI_V3),
        "/openapi/v3/apis/agg.example.com/v1" => plain(200, DOCUMENT_V3),
        "/apis/agg.example.com/v1/echo" if parts.headers.contains_key(header::UPGRADE) => chat(parts),
        "/apis/agg.example.com/v1/echo" => echo(parts),
        "/apis/agg.example.com/v1/redirect" => {
            let mut response = plain(302, "");
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("https://example.com/"));
            response
        }
        "/apis/agg.example.com/v1/namespaces/default/things" => plain(201, body.to_vec()),
        _ => plain(404, "unknown here"),
    }
}

/// A line for each header, after the method and the path, and the connection.
pub(crate) fn echo(parts: &Parts) -> Response<Full<Bytes>> {
    let header =
        |(name, value): (&http::HeaderName, &HeaderValue)| format!("{name}: {}\n", value.to_str().unwrap_or(""));
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let connection = parts.extensions.get::<ConnectionNumber>().expect("a connection").0;
    let headers: String = parts.headers.iter().map(header).collect();
    plain(200, format!("{} {path}\n{:?} connection {connection}\n{headers}", parts.method, parts.version))
}

/// Changes to a protocol that answers one line.
fn chat(parts: &Parts) -> Response<Full<Bytes>> {
    let upgrade = parts.extensions.get::<OnUpgrade>().cloned().expect("an upgrade");
    tokio::spawn(async move {
        let mut stream = BufReader::new(TokioIo::new(upgrade.await.expect("an upgraded connection")));
        stream.write_all(b"hello ").await.expect("a greeting");
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a line");
        stream.write_all(line.as_bytes()).await.expect("the line");
    });
    let mut response = plain(101, "");
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("chat"));
    response
}

fn api_service(service: &str) -> Tree {
    tree! {
        "apiVersion" => "apiregistration.k8s.io/v1", "kind" => "APIService", "metadata" => tree! { "name" => NAME },
        "spec" => tree! {
            "group" => "agg.example.com", "version" => "v1", "groupPriorityMinimum" => 1000, "versionPriority" => 15,
            "service" => tree! { "namespace" => "default", "name" => service },
        },
    }
}

async fn start() -> Cluster {
    Cluster::start_changed(|plan, _| plan.config.aggregation.routes_to_endpoints = true).await
}

/// Waits for the Available condition: its status and its reason.
async fn see(client: &Client, reason: &str) -> Tree {
    let is_there =
        |_: u16, object: &Tree| object.list("status.conditions").iter().any(|one| one.str("reason") == reason);
    let object = client.until(&format!("{SERVICES}/{NAME}"), is_there).await;
    object.list("status.conditions")[0].clone()
}

async fn create(client: &Client, path: &str, object: Tree) {
    let reply = client.post(path, &object).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
}

/// The Service of the backend and its endpoint.
async fn create_service(client: &Client, port: u16) {
    let metadata = || tree! { "name" => "agg", "labels" => tree! { "kubernetes.io/service-name" => "agg" } };
    let ports = list![tree! { "port" => 443 }];
    let service = tree! { "metadata" => metadata(), "spec" => tree! { "ports" => ports } };
    create(client, "/api/v1/namespaces/default/services", service).await;
    let slice = tree! {
        "metadata" => metadata(), "addressType" => "IPv4", "ports" => list![tree! { "name" => "", "port" => i64::from(port) }],
        "endpoints" => list![tree! { "addresses" => list![ADDRESS], "conditions" => tree! { "ready" => true } }],
    };
    create(client, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
}

#[test]
fn requests_reach_an_extension_api_server() {
    in_namespace(async || {
        let mut cluster = start().await;
        let client = &cluster.client;
        let backend = Backend::start(&cluster).await;
        create(client, SERVICES, api_service("agg")).await;
        let condition = see(client, "ServiceNotFound").await;
        assert_eq!(condition.str("message"), "service/agg in \"default\" is not present");
        let reply = client.get(&format!("{GROUP_VERSION}/echo")).await;
        assert_eq!((reply.code, reply.text().as_str()), (503, "service unavailable\n"));
        create_service(client, backend.https.address.port()).await;
        // Its certificate has no known CA.
        let condition = see(client, "FailedDiscoveryCheck").await;
        assert!(condition.str("message").contains("certificate signed by unknown authority"), "{condition:?}");
        let bundle = api::base64::encode(backend.ca.certificate.as_bytes());
        let patch = format!(r#"{{"spec":{{"caBundle":"{bundle}"}}}}"#);
        client.patch(&format!("{SERVICES}/{NAME}"), "merge", &patch).await;
        assert_eq!(see(client, "Passed").await.str("status"), "True");

        let reply = client.get(GROUP_VERSION).await;
        assert!(reply.text().contains("APIResourceList"), "{}", reply.text());
        forged_headers_are_replaced(client).await;
        let reply = client.get(&format!("{GROUP_VERSION}/redirect")).await;
        let refusal = "the backend attempted to redirect this request, which is not permitted";
        assert_eq!((reply.code, reply.text().as_str()), (502, refusal));
        let things = format!("{GROUP_VERSION}/namespaces/default/things");
        let reply = client.post(&things, &tree! { "kind" => "Thing" }).await;
        assert_eq!((reply.code, reply.text().as_str()), (201, r#"{"kind":"Thing"}"#));
        let reply = client.get(&format!("{GROUP_VERSION}/nope")).await;
        assert_eq!((reply.code, reply.text().as_str()), (404, "unknown here"));
        discovery_shows_the_group(client).await;
        openapi_shows_the_group(client).await;
        let other_version = client.get("/apis/agg.example.com/v2").await;
        assert_eq!(other_version.code, 404);

        client.delete(&format!("{SERVICES}/{NAME}")).await;
        assert_eq!(client.get(GROUP_VERSION).await.code, 404);
        assert!(!client.get("/openapi/v3").await.tree().map("paths").contains("apis/agg.example.com/v1"));
        assert!(!client.get("/openapi/v2").await.tree().map("definitions").contains("Echo"));
        cluster.stop().await;
    });
}

async fn discovery_shows_the_group(client: &Client) {
    let group = client.get("/apis/agg.example.com").await.tree();
    assert_eq!(group.str("preferredVersion.groupVersion"), "agg.example.com/v1");
    let is_ours =
        |group: &&Tree| group.str("name") == "agg.example.com" || group.str("metadata.name") == "agg.example.com";
    let plain = client.get("/apis").await.tree();
    assert_eq!(plain.list("groups").iter().filter(is_ours).count(), 1);
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let aggregated = client.raw("GET", "/apis", &accept, Vec::new()).await.tree();
    let ours = aggregated.list("items").iter().find(is_ours).expect("the group").clone();
    let version = &ours.list("versions")[0];
    assert_eq!((version.str("version"), version.str("freshness")), ("v1", "Current"));
    assert_eq!(version.list("resources")[0].str("resource"), "things");
}

/// The backend trusts the headers because of the certificate: none of them may come from the client.
async fn forged_headers_are_replaced(client: &Client) {
    let forged = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-scopes", "all"),
        ("x-custom", "kept"),
    ];
    let reply = client.raw("GET", &format!("{GROUP_VERSION}/echo?b=2&a=%20"), &forged, Vec::new()).await;
    let text = reply.text();
    assert!(text.starts_with("GET /apis/agg.example.com/v1/echo?a=+&b=2\n"), "{text}");
    for line in ["x-remote-user: kubernetes-admin", "x-custom: kept", "x-forwarded-proto: https", "audit-id: "] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for word in ["root", "x-remote-extra-scopes", "authorization"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_broken_backend_becomes_unavailable_and_returns() {
    in_namespace(async || {
        let mut cluster = start().await;
        let client = &cluster.client;
        let backend = Backend::start(&cluster).await;
        create_service(client, backend.https.address.port()).await;
        let mut service = api_service("agg");
        service.child("spec").set("insecureSkipTLSVerify", true);
        create(client, SERVICES, service).await;
        see(client, "Passed").await;
        openapi_shows_the_group(client).await;
        backend.is_broken.store(true, Ordering::Relaxed);
        poke(client, "1").await;
        let condition = see(client, "FailedDiscoveryCheck").await;
        assert!(condition.str("message").ends_with("/apis/agg.example.com/v1: 500"), "{condition:?}");
        assert_eq!(client.get(&format!("{GROUP_VERSION}/echo")).await.code, 503);
        openapi_shows_the_group(client).await;
        backend.is_broken.store(false, Ordering::Relaxed);
        // Without any change: it is checked again by itself.
        see(client, "Passed").await;
        let is_served = async || client.get(&format!("{GROUP_VERSION}/echo")).await.code == 200;
        until_await("the backend is served", Duration::from_secs(30), is_served).await;
        cluster.stop().await;
    });
}

/// The documents of the backend are merged into ours.
async fn openapi_shows_the_group(client: &Client) {
    let shows = |_: u16, index: &Tree| index.map("paths").contains("apis/agg.example.com/v1");
    let index = client.until("/openapi/v3", shows).await;
    let url = index.map("paths").get("apis/agg.example.com/v1").expect("a document").str("serverRelativeURL");
    assert_eq!(url, "/openapi/v3/apis/agg.example.com/v1?hash=ABC");
    assert_eq!(client.get(url).await.tree().at("info").str("title"), "agg");
    let has_path = |_: u16, document: &Tree| document.map("paths").contains("/apis/agg.example.com/v1/echo");
    let document = client.until("/openapi/v2", has_path).await;
    assert!(document.map("definitions").contains("Echo"));
    assert!(!document.map("definitions").contains("Unused"), "nothing refers to it");
    assert!(!document.map("paths").contains("/apis/apps/v1/stolen"), "another group version");
    let accept = [("accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")];
    assert_eq!(client.raw("GET", url, &accept, Vec::new()).await.code, 200);
}

#[test]
fn openapi_v2_of_a_server_without_v3_is_converted() {
    in_namespace(async || {
        let mut cluster = start().await;
        let client = &cluster.client;
        let backend = Backend::start(&cluster).await;
        backend.is_old.store(true, Ordering::Relaxed);
        create_service(client, backend.https.address.port()).await;
        let mut service = api_service("agg");
        service.child("spec").set("caBundle", api::base64::encode(backend.ca.certificate.as_bytes()));
        create(client, SERVICES, service).await;
        see(client, "Passed").await;
        let shows = |_: u16, index: &Tree| index.map("paths").contains("apis/agg.example.com/v1");
        let index = client.until("/openapi/v3", shows).await;
        let url = index.map("paths").get("apis/agg.example.com/v1").expect("a document").str("serverRelativeURL");
        let document = client.get(url).await.tree();
        assert_eq!((document.str("openapi"), document.at("info").str("title")), ("3.0.0", "agg"), "{document:?}");
        assert!(document.at("components").map("schemas").contains("Echo"), "{document:?}");
        assert!(document.map("paths").contains("/apis/agg.example.com/v1/echo"), "{document:?}");
        let accept = [("accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")];
        assert_eq!(client.raw("GET", url, &accept, Vec::new()).await.code, 200);
        cluster.stop().await;
    });
}

/// A change of the APIService causes a check at once.
async fn poke(client: &Client, value: &str) {
    let patch = format!(r#"{{"metadata":{{"annotations":{{"poke":"{value}"}}}}}}"#);
    client.patch(&format!("{SERVICES}/{NAME}"), "merge", &patch).await;
}

#[test]
fn services_without_endpoints_are_refused() {
    in_namespace(async || {
        let mut cluster = start().await;
        let client = &cluster.client;
        let spec = tree! { "type" => "ExternalName", "externalName" => "localhost" };
        let service = tree! { "metadata" => tree! { "name" => "ext" }, "spec" => spec };
        create(client, "/api/v1/namespaces/default/services", service).await;
        create(client, SERVICES, api_service("ext")).await;
        let condition = see(client, "FailedDiscoveryCheck").await;
        assert_eq!(condition.str("message"), "unsupported service type \"ExternalName\"");
        cluster.stop().await;
    });
}

/// A cluster with an available backend.
async fn start_available(alpn: &[&[u8]]) -> (Cluster, Backend) {
    let cluster = start().await;
    let backend = Backend::start_with(&cluster, alpn).await;
    create_service(&cluster.client, backend.https.address.port()).await;
    let mut service = api_service("agg");
    service.child("spec").set("insecureSkipTLSVerify", true);
    create(&cluster.client, SERVICES, service).await;
    see(&cluster.client, "Passed").await;
    (cluster, backend)
}

#[test]
fn connections_are_kept() {
    in_namespace(async || {
        for (alpn, version) in [(&[tls::HTTP2, tls::HTTP1][..], "HTTP/2.0"), (&[tls::HTTP1], "HTTP/1.1")] {
            let (mut cluster, _backend) = start_available(alpn).await;
            let client = &cluster.client;
            let mut seen = Vec::new();
            for _ in 0..5 {
                let text = client.get(&format!("{GROUP_VERSION}/echo")).await.text();
                let line = text.lines().nth(1).expect("a line").to_string();
                assert!(line.starts_with(version), "{text}");
                assert_eq!(text.contains("\nhost: "), version == "HTTP/1.1", "{text}");
                seen.push(line);
            }
            seen.dedup();
            assert_eq!(seen.len(), 1, "{seen:?}");
            let things = format!("{GROUP_VERSION}/namespaces/default/things");
            let large = tree! { "kind" => "Thing", "text" => "x".repeat(300_000) };
            let reply = client.post(&things, &large).await;
            assert_eq!((reply.code, reply.tree()), (201, large));
            cluster.stop().await;
        }
    });
}

#[test]
fn connections_are_upgraded() {
    in_namespace(async || {
        let (mut cluster, _backend) = start_available(&[tls::HTTP2, tls::HTTP1]).await;
        let mut request = testkit::client::get(&format!("{GROUP_VERSION}/echo"));
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("chat"));
        let response = http_client::send_once(cluster.client.dial().await, request).await.expect("a response");
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::UPGRADE]),
            (101, &HeaderValue::from_static("chat"))
        );
        let mut stream = TokioIo::new(hyper::upgrade::on(response).await.expect("an upgraded connection"));
        stream.write_all(b"world\n").await.expect("sent");
        let mut text = [0; 12];
        stream.read_exact(&mut text).await.expect("a response");
        assert_eq!(&text, b"hello world\n");
        cluster.stop().await;
    });
}

const AGGREGATED: [(&str, &str); 1] =
    [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];

/// Waits until aggregated discovery shows the group version with this freshness.
async fn see_freshness(client: &Client, freshness: &str) {
    let shows = async || {
        let all = client.raw("GET", "/apis", &AGGREGATED, Vec::new()).await.tree();
        let ours = all.list("items").iter().find(|group| group.str("metadata.name") == "agg.example.com");
        let version = ours.and_then(|group| group.list("versions").first()).cloned().unwrap_or_default();
        // Its resources are kept.
        version.str("freshness") == freshness && version.list("resources")[0].str("resource") == "things"
    };
    until_await("discovery of the group", Duration::from_secs(30), shows).await;
}

#[test]
fn discovery_is_kept_while_the_backend_is_down() {
    in_namespace(async || {
        let (mut cluster, backend) = start_available(&[tls::HTTP2, tls::HTTP1]).await;
        let client = &cluster.client;
        see_freshness(client, "Current").await;
        backend.is_broken.store(true, Ordering::Relaxed);
        poke(client, "1").await;
        see(client, "FailedDiscoveryCheck").await;
        see_freshness(client, "Stale").await;
        let plain = client.get("/apis").await.tree();
        assert!(plain.list("groups").iter().any(|group| group.str("name") == "agg.example.com"), "kept");
        backend.is_broken.store(false, Ordering::Relaxed);
        see(client, "Passed").await;
        see_freshness(client, "Current").await;
        cluster.stop().await;
    });
}

#[test]
fn requests_are_routed_to_the_cluster_ip() {
    in_namespace(async || {
        let mut cluster = Cluster::start(testkit::Storage::Embedded).await;
        let client = &cluster.client;
        let backend = Backend::start(&cluster).await;
        // Instead of a proxy, the machine has the Service's address.
        let port = i64::from(backend.https.address.port());
        let service = tree! {
            "metadata" => tree! { "name" => "agg" }, "spec" => tree! { "ports" => list![tree! { "port" => port }] },
        };
        create(client, "/api/v1/namespaces/default/services", service).await;
        let service = client.get("/api/v1/namespaces/default/services/agg").await.tree();
        let mut rtnl = Rtnl::open().expect("netlink");
        let lo = rtnl.link("lo").expect("a response").expect("lo").index;
        let address = format!("{}/32", service.str("spec.clusterIP"));
        rtnl.add_address(lo, address.parse().expect("an address")).expect("added");
        let mut registered = api_service("agg");
        registered.child("spec").set("insecureSkipTLSVerify", true);
        registered.child("spec.service").set("port", port);
        create(client, SERVICES, registered).await;
        // There has to be an endpoint, but this one is not the backend.
        let metadata = tree! { "name" => "agg", "labels" => tree! { "kubernetes.io/service-name" => "agg" } };
        let slice = tree! {
            "metadata" => metadata, "addressType" => "IPv4", "ports" => list![tree! { "name" => "", "port" => 1 }],
            "endpoints" => list![tree! { "addresses" => list![ADDRESS], "conditions" => tree! { "ready" => true } }],
        };
        create(client, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
        see(client, "Passed").await;
        let reply = client.get(&format!("{GROUP_VERSION}/echo")).await;
        assert!(reply.code == 200 && reply.text().starts_with("GET /apis/agg.example.com/v1/echo"), "{}", reply.text());
        cluster.stop().await;
    });
}

/// Validation refuses these addresses, but another server on the same etcd may have stored them.
#[test]
fn endpoints_on_the_machine_and_its_link_are_not_called() {
    in_namespace(async || {
        for (family, address) in
            [("IPv4", "127.0.0.1"), ("IPv4", "169.254.169.254"), ("IPv6", "::ffff:127.0.0.1"), ("IPv6", "fe80::1")]
        {
            let dialled = Arc::new(AtomicBool::new(false));
            let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let seen = dialled.clone();
            let accept = tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    seen.store(true, Ordering::Relaxed);
                }
            });
            let slice = tree! {
                "apiVersion" => "discovery.k8s.io/v1", "kind" => "EndpointSlice",
                "metadata" => tree! {
                    "name" => "agg", "namespace" => "default", "uid" => "0a94e6f2-0d5b-4944-b7e9-0abc407611fd",
                    "creationTimestamp" => "2026-01-02T03:04:05Z",
                    "labels" => tree! { "kubernetes.io/service-name" => "agg" },
                },
                "addressType" => family, "ports" => list![tree! { "name" => "", "port" => i64::from(port) }],
                "endpoints" => list![tree! { "addresses" => list![address], "conditions" => tree! { "ready" => true } }],
            };
            let mut config = server::Config::default();
            config.aggregation.routes_to_endpoints = true;
            let mut cluster = Cluster::start_with(testkit::Storage::Etcd, config, async |etcd| {
                etcd.put("/registry/endpointslices/default/agg", &api::json::encode(&slice, None)).await;
            })
            .await;
            let client = &cluster.client;
            let ports = list![tree! { "port" => 443 }];
            let service = tree! { "metadata" => tree! { "name" => "agg" }, "spec" => tree! { "ports" => ports } };
            create(client, "/api/v1/namespaces/default/services", service).await;
            let mut registered = api_service("agg");
            registered.child("spec").set("insecureSkipTLSVerify", true);
            create(client, SERVICES, registered).await;
            let condition = see(client, "FailedDiscoveryCheck").await;
            assert!(condition.str("message").contains("is not allowed"), "{address}: {condition:?}");
            let reply = client.get(&format!("{GROUP_VERSION}/echo")).await;
            assert_eq!((reply.code, reply.text().as_str()), (503, "service unavailable\n"), "{address}");
            assert!(!dialled.load(Ordering::Relaxed), "{address}");
            accept.abort();
            cluster.stop().await;
        }
    });
}
