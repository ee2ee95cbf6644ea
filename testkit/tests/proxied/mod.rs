//! Requests through the proxies of pods and services, with every method, to a backend that speaks TLS. In a network
//! namespace of the test: a backend never has a loopback address. It needs root.

use std::time::Duration;

use api::{Tree, list, tree};
use cluster::pki::Subject;
use http::request::Parts;
use http_client::tls;
use stdx::wait::until_await;
use testkit::{Client, Cluster, Https, Storage};

use crate::aggregation::{ADDRESS, echo, in_namespace};

const CORE: &str = "/api/v1/namespaces/default";

async fn create(client: &Client, path: &str, object: Tree) {
    let reply = client.post(path, &object).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
}

/// A backend with a certificate that no client trusts.
async fn start_backend(cluster: &Cluster, alpn: &[&[u8]]) -> Https {
    let pki = cluster.pki();
    let ca = pki.read("front-proxy-ca").expect("a CA").expect("a CA");
    let subject = Subject {
        file: "backend".to_string(),
        ca: "front-proxy-ca",
        common_name: "backend".to_string(),
        organization: String::new(),
        names: vec!["elsewhere".to_string()],
        addresses: Vec::new(),
    };
    let pair = pki.issue(&ca, &subject).expect("a certificate");
    let respond = |parts: &Parts, body: &[u8]| {
        let mut response = echo(parts);
        response.headers_mut().insert("x-body", format!("{}", body.len()).parse().expect("a header"));
        Some(response)
    };
    Https::serve_protocols(&pair, alpn, respond).await
}

/// A pod at the address of the backend, and a Service whose port `web` leads to it.
async fn create_objects(client: &Client, port: u16) {
    create(client, &format!("{CORE}/serviceaccounts"), tree! { "metadata" => tree! { "name" => "default" } }).await;
    let container = tree! { "name" => "c", "image" => "none" };
    let pod = tree! { "metadata" => tree! { "name" => "p" }, "spec" => tree! { "containers" => list![container] } };
    create(client, &format!("{CORE}/pods"), pod).await;
    let status = format!(r#"{{"status":{{"phase":"Running","podIP":"{ADDRESS}","podIPs":[{{"ip":"{ADDRESS}"}}]}}}}"#);
    let reply = client.patch(&format!("{CORE}/pods/p/status"), "merge", &status).await;
    assert_eq!(reply.code, 200, "{}", reply.text());
    let ports = list![tree! { "name" => "web", "port" => 443, "targetPort" => i64::from(port) }];
    let service = tree! { "metadata" => tree! { "name" => "a" }, "spec" => tree! { "ports" => ports } };
    create(client, &format!("{CORE}/services"), service).await;
    let target = tree! { "kind" => "Pod", "namespace" => "default", "name" => "p" };
    let endpoint =
        tree! { "addresses" => list![ADDRESS], "conditions" => tree! { "ready" => true }, "targetRef" => target };
    let slice = tree! {
        "metadata" => tree! { "name" => "a", "labels" => tree! { "kubernetes.io/service-name" => "a" } },
        "addressType" => "IPv4", "ports" => list![tree! { "name" => "web", "port" => i64::from(port) }],
        "endpoints" => list![endpoint],
    };
    create(client, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
}

#[test]
fn every_method_reaches_a_backend_that_speaks_tls() {
    in_namespace(async || {
        for alpn in [&[tls::HTTP2, tls::HTTP1][..], &[tls::HTTP1]] {
            let mut cluster = Cluster::start(Storage::Embedded).await;
            let client = &cluster.client;
            let backend = start_backend(&cluster, alpn).await;
            let port = backend.address.port();
            create_objects(client, port).await;
            let is_served = async || client.get(&format!("{CORE}/services/https:a:web/proxy/")).await.code == 200;
            until_await("the service has an endpoint", Duration::from_secs(30), is_served).await;
            for target in
                [format!("pods/https:p:{port}"), "services/https:a:web".to_string(), "services/https:a:443".to_string()]
            {
                for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                    expect_echo(client, method, &target).await;
                }
            }
            // Plain HTTP is not what this backend speaks.
            let reply = client.get(&format!("{CORE}/services/a:web/proxy/")).await;
            assert!(reply.code >= 400, "{}", reply.text());
            let reply = client.get(&format!("{CORE}/services/ftp:a:web/proxy/")).await;
            assert_eq!(reply.code, 400, "{}", reply.text());
            cluster.stop().await;
        }
    });
}

async fn expect_echo(client: &Client, method: &str, target: &str) {
    let path = format!("{CORE}/{target}/proxy/deep/er%20path?x=1");
    let body = if ["GET", "HEAD", "OPTIONS"].contains(&method) { Vec::new() } else { b"body".to_vec() };
    let length = body.len().to_string();
    let headers = [("content-type", "application/octet-stream"), ("x-custom", "kept")];
    let reply = client.raw(method, &path, &headers, body).await;
    assert_eq!(reply.code, 200, "{method} {target}: {}", reply.text());
    assert_eq!(reply.headers["x-body"], length.as_str(), "{method} {target}");
    let text = reply.text();
    if method == "HEAD" {
        assert_eq!(text, "", "{target}");
        return;
    }
    assert!(text.starts_with(&format!("{method} /deep/er%20path?x=1\n")), "{method} {target}: {text}");
    assert!(text.contains("x-custom: kept\n"), "{method} {target}: {text}");
}
