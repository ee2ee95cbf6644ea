//! Names of the cluster, which follow the API.

use std::sync::Arc;

use dns::message::{Rcode, Type};
use stdx::wait::until_await;

use crate::support::{
    FakeApi, Upstream, ask, ask_from, config, eventually, lookup, name, query, ready, shown, start_with,
};

const SERVICES: &str = "/api/v1/services";
const NAMESPACES: &str = "/api/v1/namespaces";
const PODS: &str = "/api/v1/pods";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

fn service(name: &str, spec: &str) -> String {
    format!(r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"{name}"}},"spec":{spec}}}"#)
}

fn slice(service: &str, addresses: &[&str]) -> String {
    let endpoints: Vec<String> = addresses.iter().map(|address| format!(r#"{{"addresses":["{address}"]}}"#)).collect();
    format!(
        r#"{{"metadata":{{"namespace":"default","name":"{service}-1","uid":"{service}-1",
        "labels":{{"kubernetes.io/service-name":"{service}"}}}},"ports":[{{"name":"http","port":80}}],
        "endpoints":[{}]}}"#,
        endpoints.join(",")
    )
}

fn api() -> Arc<FakeApi> {
    let api = Arc::new(FakeApi::default());
    api.put(NAMESPACES, r#"{"metadata":{"name":"default","uid":"d"}}"#);
    api.put(SERVICES, &service("web", r#"{"clusterIPs":["10.96.0.5"],"ports":[{"port":80}]}"#));
    api
}

fn corefile(more: &str) -> dns::CorefileSource {
    let plugin = "kubernetes cluster.local in-addr.arpa {\nttl 30\nfallthrough in-addr.arpa\n}";
    dns::CorefileSource::Text(format!(". {{\n{plugin}\n{more}\n}}"))
}

#[tokio::test]
async fn answers_follow_the_api() {
    let api = api();
    let (_running, server) = start_with(config(corefile("loadbalance")), Some(api.cluster())).await;
    eventually(server, "web.default.svc.cluster.local", "NOERROR 10.96.0.5").await;
    api.put(SERVICES, &service("web", r#"{"clusterIPs":["10.96.0.6"],"ports":[{"port":80}]}"#));
    eventually(server, "web.default.svc.cluster.local", "NOERROR 10.96.0.6").await;
    api.put(SERVICES, &service("db", r#"{"clusterIP":"None"}"#));
    api.put(SLICES, &slice("db", &["10.244.0.1"]));
    eventually(server, "db.default.svc.cluster.local", "NOERROR 10.244.0.1").await;
    api.put(SLICES, &slice("db", &["10.244.0.2"]));
    eventually(server, "db.default.svc.cluster.local", "NOERROR 10.244.0.2").await;
    assert_eq!(
        lookup(server, "2.0.244.10.in-addr.arpa", Type::PTR).await,
        "NOERROR 10-244-0-2.db.default.svc.cluster.local."
    );
    api.delete(SLICES, "default/db-1");
    eventually(server, "db.default.svc.cluster.local", "NXDOMAIN").await;
    api.delete(NAMESPACES, "default");
    eventually(server, "web.default.svc.cluster.local", "NXDOMAIN").await;
}

#[tokio::test]
async fn an_event_is_answered_as_soon_as_it_has_arrived() {
    let api = api();
    let (running, server) = start_with(config(corefile("")), Some(api.cluster())).await;
    ready(&running).await;
    for last in 1..100 {
        let spec = format!(r#"{{"clusterIPs":["10.96.1.{last}"],"ports":[{{"port":80}}]}}"#);
        api.put(SERVICES, &service("web", &spec));
        // The watch and the server are tasks of this thread: both have run by the time of the second response.
        lookup(server, "web.default.svc.cluster.local", Type::A).await;
        let answer = lookup(server, "web.default.svc.cluster.local", Type::A).await;
        assert_eq!(answer, format!("NOERROR 10.96.1.{last}"));
    }
}

#[tokio::test]
async fn negative_answers_have_the_soa_of_the_zone() {
    let api = api();
    let (running, server) = start_with(config(corefile("")), Some(api.cluster())).await;
    ready(&running).await;
    for (of, qtype, rcode) in [
        ("missing.default.svc.cluster.local", Type::A, Rcode::NAME_ERROR),
        ("web.default.svc.cluster.local", Type::AAAA, Rcode::NO_ERROR),
    ] {
        let response = ask(server, &query(of, qtype)).await;
        assert_eq!((response.header.rcode, response.header.authoritative), (rcode, true), "{of}");
        assert!(response.answers.is_empty());
        let [soa] = response.authorities.as_slice() else { panic!("{response:?}") };
        assert_eq!((&soa.name, soa.rtype, soa.ttl), (&name("cluster.local"), Type::SOA, 30));
    }
    // No upstream, and outside of the zone.
    assert_eq!(lookup(server, "example.org", Type::A).await, "REFUSED");
    assert_eq!(lookup(server, "1.1.1.1.in-addr.arpa", Type::PTR).await, "REFUSED", "it is passed on");
}

#[tokio::test]
async fn external_names_are_followed_live() {
    let upstream = Upstream::start(|query| {
        let last = if query.question.as_ref()?.name == name("a.example.org") { 1 } else { 2 };
        Some(crate::support::address_of(query, last, 60))
    })
    .await;
    let api = api();
    let external = |target: &str| service("ext", &format!(r#"{{"type":"ExternalName","externalName":"{target}"}}"#));
    api.put(SERVICES, &external("a.example.org"));
    let forward = format!("forward . {}", upstream.address);
    let (_running, server) = start_with(config(corefile(&forward)), Some(api.cluster())).await;
    eventually(server, "ext.default.svc.cluster.local", "NOERROR a.example.org. 10.9.9.1").await;
    api.put(SERVICES, &external("b.example.org"));
    eventually(server, "ext.default.svc.cluster.local", "NOERROR b.example.org. 10.9.9.2").await;
    // An alias of a name in the zone.
    api.put(SERVICES, &external("web.default.svc.cluster.local"));
    eventually(server, "ext.default.svc.cluster.local", "NOERROR web.default.svc.cluster.local. 10.96.0.5").await;
    // A circle ends.
    api.put(SERVICES, &service("one", r#"{"type":"ExternalName","externalName":"two.default.svc.cluster.local"}"#));
    api.put(SERVICES, &service("two", r#"{"type":"ExternalName","externalName":"one.default.svc.cluster.local"}"#));
    let one = query("one.default.svc.cluster.local", Type::A);
    let fails = async || ask(server, &one).await.header.rcode == Rcode::SERVER_FAILURE;
    until_await("a failure", crate::support::WAIT, fails).await;
}

#[tokio::test]
async fn search_paths_take_one_round_trip() {
    let upstream = Upstream::start(|query| {
        let is_known = query.question.as_ref()?.name.matches(&name("www.example.org"));
        Some(if is_known { crate::support::address_of(query, 3, 60) } else { query.reply(Rcode::NAME_ERROR) })
    })
    .await;
    let api = api();
    api.put(NAMESPACES, r#"{"metadata":{"name":"other","uid":"o"}}"#);
    let dir = tempfile::tempdir().expect("a directory");
    let resolv_conf = dir.path().join("resolv.conf");
    std::fs::write(&resolv_conf, "search corp.example.org\n").expect("a file");
    let text = format!("autopath @kubernetes\nforward . {}", upstream.address);
    let config = dns::Config { resolv_conf, ..config(corefile(&text)) };
    let (running, server) = start_with(config, Some(api.cluster())).await;
    ready(&running).await;
    let first = "www.example.org.other.svc.cluster.local";
    eventually(server, "web.default.svc.cluster.local", "NOERROR 10.96.0.5").await;
    assert_eq!(lookup(server, first, Type::A).await, "NXDOMAIN", "the client is no pod");
    let pod = |more: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"other","name":"p","uid":"p"}},"spec":{{{more}}},
            "status":{{"podIPs":[{{"ip":"127.0.0.1"}}]}}}}"#
        )
    };
    api.put(PODS, &pod(""));
    eventually(server, first, "NOERROR www.example.org. 10.9.9.3").await;
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let check = async |of: &str, want: &str| {
        assert_eq!(shown(&ask_from(&socket, server, &query(of, Type::A)).await), want, "{of}");
    };
    // A Service of another namespace, whose first search domain is the pod's own.
    check("web.default.other.svc.cluster.local", "NOERROR web.default.svc.cluster.local. 10.96.0.5").await;
    check("missing.other.svc.cluster.local", "NXDOMAIN").await;
    check("web.default.svc.cluster.local", "NOERROR 10.96.0.5").await;
    // Not the first domain of the path.
    check("www.example.org.svc.cluster.local", "NXDOMAIN").await;
    let response = ask(server, &query(first, Type::A)).await;
    assert_eq!(response.answers[0].name, name(first), "the answer is for the question");
    assert!(upstream.queries().iter().any(|(_, query, _)| {
        query.question.as_ref().is_some_and(|question| question.name == name("www.example.org.corp.example.org"))
    }));
    api.put(PODS, &pod(r#""dnsConfig":{"searches":["x"]}"#));
    eventually(server, first, "NXDOMAIN").await;
}

#[tokio::test]
async fn missing_names_fail_before_the_first_list() {
    let api = api();
    api.pause(true);
    let (running, server) = start_with(config(corefile("")), Some(api.cluster())).await;
    assert!(!running.is_ready());
    assert_eq!(lookup(server, "web.default.svc.cluster.local", Type::A).await, "SERVFAIL");
    api.pause(false);
    eventually(server, "web.default.svc.cluster.local", "NOERROR 10.96.0.5").await;
}

#[tokio::test]
async fn watches_only_needed_resources() {
    let api = api();
    let text = ". {\nkubernetes cluster.local {\nlabels app=x\nnamespace_labels team=y\n}\nautopath @kubernetes\n}";
    let config = dns::Config { node_name: Some("n1".into()), ..config(dns::CorefileSource::Text(text.into())) };
    let (_running, server) = start_with(config, Some(api.cluster())).await;
    eventually(server, "web.default.svc.cluster.local", "NOERROR 10.96.0.5").await;
    let paths = api.paths();
    let has = |path: &str, query: &str| paths.iter().any(|of| of.starts_with(path) && of.contains(query));
    assert!(has(SERVICES, "labelSelector=app%3Dx") && has(NAMESPACES, "labelSelector=team%3Dy"), "{paths:?}");
    assert!(has(PODS, "fieldSelector=spec.nodeName%3Dn1"), "{paths:?}");
    assert!(!paths.iter().any(|path| path.contains("configmaps")), "{paths:?}");
}
