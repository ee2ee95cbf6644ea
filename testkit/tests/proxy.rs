//! The service proxy against a whole API server, in a network namespace of the test: what it reads, confirms, serves and
//! repairs. It needs root and the Debian package nftables.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Tree;
use cluster::pki::Subject;
use network::netlink::{Route, Rtnl};
use proxy::config::{Configuration, LocalMode, Mode};
use proxy::runner::{self, Environment, ProxyHandle};
use stdx::clock::SystemClock;
use testkit::client::tls;
use testkit::{Client, Cluster, Storage};

const NODE: &str = "n1";
const TABLE: &str = "runner-test";
const APPLIED: &str = "tiphys.io/endpoints-applied";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test in a namespace: its threads, sockets and programs stay there.
fn in_namespace<F: Future<Output = ()> + 'static>(test: fn() -> F) {
    let run = move || {
        network::ns::unshare().expect("this test needs root");
        let mut rtnl = Rtnl::open().expect("netlink");
        let lo = rtnl.link("lo").expect("an answer").expect("lo").index;
        rtnl.set_up(lo).expect("up");
        for address in ["192.0.2.1/32", "10.9.9.1/32", "10.9.9.2/32"] {
            rtnl.add_address(lo, address.parse().expect("an address")).expect("added");
        }
        // A client needs a route to send a packet, and no packet leaves.
        rtnl.add_route(&Route::new("10.96.0.0/12".parse().expect("a range"), None, lo)).expect("a route");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test());
    };
    std::thread::spawn(run).join().expect("the test");
}

/// A client with a certificate of this user.
fn client_of(cluster: &Cluster, user: &str, group: &str) -> client::Client {
    let pki = cluster.pki();
    let ca = pki.read("ca").expect("a CA bundle").expect("a CA bundle");
    let subject = Subject {
        file: user.replace(':', "-"),
        ca: "ca",
        common_name: user.to_string(),
        organization: group.to_string(),
        names: Vec::new(),
        addresses: Vec::new(),
    };
    let pair = pki.issue(&ca, &subject).expect("a certificate");
    let port = cluster.address().port();
    let https = client::https::Https::new("127.0.0.1", port, None, Arc::new(tls(&ca, Some(&pair))));
    client::Client::new(Arc::new(https.expect("a client")), "test")
}

async fn start_proxy(cluster: &Cluster, change: impl FnOnce(&mut Configuration)) -> ProxyHandle {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut configuration = Configuration {
        node_name: NODE.to_string(),
        table: TABLE.to_string(),
        local_mode: LocalMode::ClusterCidr(vec!["10.9.0.0/16".parse().expect("a range")]),
        healthz_address: Some(any),
        metrics_address: Some(any),
        bind_hard_fail: true,
        ..Configuration::default()
    };
    change(&mut configuration);
    let environment = Environment {
        // With the permissions of upstream's proxy; confirmations use those of its node.
        client: client_of(cluster, "system:kube-proxy", "none"),
        node_client: Some(client_of(cluster, "system:node:n1", "system:nodes")),
        configuration,
        metrics: client::Metrics::default(),
        clock: Arc::new(SystemClock),
    };
    let running = runner::start(environment).await.expect("a proxy");
    tokio::time::timeout(DEADLINE, running.synced()).await.expect("a sync");
    running
}

async fn start_cluster() -> Cluster {
    let cluster = Cluster::start(Storage::Embedded).await;
    let node = r#"{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}"#;
    let created = cluster.client.post("/api/v1/nodes", &decode(node)).await;
    assert_eq!(created.code, 201, "{}", created.text());
    cluster
}

fn decode(text: &str) -> Tree {
    api::json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn make(client: &Client, path: &str, text: &str) -> Tree {
    let reply = client.post(path, &decode(text)).await;
    assert_eq!(reply.code, 201, "{text}: {}", reply.text());
    reply.tree()
}

/// Replies to connections with a name.
fn serve(address: &str, name: &'static str) {
    let listener = TcpListener::bind(address).expect("a listener");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(name.as_bytes());
        }
    });
}

fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.parse().expect("an address"), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Waits until a condition holds, and returns how long that took.
async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    started.elapsed()
}

/// The code, the headers and the body of a plain HTTP response.
async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("received");
        let (head, body) = text.split_once("\r\n\r\n").expect("a response");
        (head.to_string(), body.to_string())
    })
    .await
    .expect("a response")
}

fn slice(name: &str, service: &str, addresses: &[&str]) -> String {
    let endpoint =
        |address: &&str| format!(r#"{{"addresses":["{address}"],"nodeName":"n1","conditions":{{"ready":true}}}}"#);
    let endpoints: Vec<String> = addresses.iter().map(endpoint).collect();
    format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"kubernetes.io/service-name":"{service}"}}}},"addressType":"IPv4",
        "ports":[{{"name":"","port":8080}}],"endpoints":[{}]}}"#,
        endpoints.join(",")
    )
}

async fn set_slice(client: &Client, name: &str, service: &str, addresses: &[&str]) -> u64 {
    let (path, body) = (format!("{SLICES}/{name}"), slice(name, service, addresses));
    let reply = client.patch(&path, "merge", &body).await;
    assert_eq!(reply.code, 200, "{}", reply.text());
    reply.tree().str("metadata.resourceVersion").parse().expect("a revision")
}

fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().expect("nft is there (Debian's nftables)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn services_are_forwarded_confirmed_and_repaired() {
    in_namespace(|| async {
        let cluster = start_cluster().await;
        let client = &cluster.client;
        serve("10.9.9.1:8080", "one");
        serve("10.9.9.2:8080", "two");
        let service = make(client, SERVICES, r#"{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}"#).await;
        let vip = format!("{}:80", service.str("spec.clusterIP"));
        make(client, SLICES, &slice("web-1", "web", &["10.9.9.1"])).await;
        let proxy = start_proxy(&cluster, |_| {}).await;
        assert_eq!(proxy.mode, Mode::Nftables);
        assert_eq!(ask(&vip).expect("a reply"), "one");

        // The proxy confirms its first list.
        let applied = |node: &Tree| node.map("metadata.annotations").str(APPLIED).parse::<u64>().ok();
        client.until("/api/v1/nodes/n1", |_, node| applied(node).is_some()).await;

        // A change is applied at once, and confirmed when an endpoint is removed.
        let revision = set_slice(client, "web-1", "web", &["10.9.9.2"]).await;
        until("the new endpoint is used", || ask(&vip).is_ok_and(|name| name == "two")).await;
        client.until("/api/v1/nodes/n1", |_, node| applied(node) >= Some(revision)).await;
        set_slice(client, "web-1", "web", &[]).await;
        let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        until("connections are refused", || ask(&vip).is_err_and(refused)).await;
        set_slice(client, "web-1", "web", &["10.9.9.1"]).await;
        until("the endpoint is back", || ask(&vip).is_ok()).await;

        // Rules that another process deletes are repaired.
        for damage in [vec!["delete", "table", "ip", TABLE], vec!["flush", "ruleset"]] {
            nft(&damage);
            let took = until("rules are repaired", || ask(&vip).is_ok_and(|name| name == "one")).await;
            assert!(took < Duration::from_secs(10), "{took:?}");
        }
        serves_health_and_metrics(&proxy).await;

        // A stopped proxy keeps its rules, and confirms nothing.
        proxy.stop().await;
        client.until("/api/v1/nodes/n1", |_, node| applied(node).is_none()).await;
        assert_eq!(ask(&vip).expect("a reply"), "one");
        // `--cleanup` deletes them.
        let configuration = Configuration { table: TABLE.to_string(), ..Configuration::default() };
        runner::cleanup(&configuration).expect("cleanup");
        assert!(!nft(&["list", "tables"]).contains(TABLE));
        runner::cleanup(&configuration).expect("cleanup of nothing");
        // A proxy with cleanup removes all its rules.
        let proxy = start_proxy(&cluster, |config| config.cleanup_on_stop = true).await;
        proxy.stop().await;
        assert!(!nft(&["list", "tables"]).contains(TABLE));
    });
}

async fn serves_health_and_metrics(proxy: &ProxyHandle) {
    let (health, metrics) = (proxy.healthz_address.expect("bound"), proxy.metrics_address.expect("bound"));
    let (head, body) = get(health, "/healthz").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/json"), "{head}");
    let body = decode(&body);
    assert!(body.bool("healthy") && body.bool("nodeEligible") && body.bool("status.IPv4.healthy"), "{body:?}");
    assert!(!decode(&get(health, "/livez").await.1).has("nodeEligible"));
    assert!(get(health, "/nothing").await.0.starts_with("HTTP/1.1 404"));
    assert_eq!(get(metrics, "/proxyMode").await.1, "nftables");
    let text = get(metrics, "/metrics").await.1;
    for name in [
        "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
        "kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"}",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"}",
        "kubeproxy_sync_proxy_rules_endpoint_changes_total",
        "kubeproxy_sync_proxy_rules_service_changes_total",
        "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"IPv4\",traffic_policy=\"internal\"} 0",
        "kubeproxy_proxy_healthz_total{code=\"200\"}",
        "kubeproxy_proxy_livez_total{code=\"200\"}",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
}

/// iptables reports no changes: its rules are verified periodically.
#[test]
fn iptables_rules_are_repaired() {
    in_namespace(|| async {
        let cluster = start_cluster().await;
        serve("10.9.9.1:8080", "one");
        let service =
            make(&cluster.client, SERVICES, r#"{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}"#).await;
        let vip = format!("{}:80", service.str("spec.clusterIP"));
        make(&cluster.client, SLICES, &slice("web-1", "web", &["10.9.9.1"])).await;
        let change = |config: &mut Configuration| {
            config.mode = Some(Mode::Iptables);
            config.verify_period = Duration::from_secs(1);
            config.cleanup_on_stop = true;
        };
        let proxy = start_proxy(&cluster, change).await;
        assert_eq!(get(proxy.metrics_address.expect("bound"), "/proxyMode").await.1, "iptables");
        assert_eq!(ask(&vip).expect("a reply"), "one");
        let flushed = Command::new("iptables").args(["-t", "nat", "-F"]).status().expect("iptables is there");
        assert!(flushed.success());
        let took = until("rules are repaired", || ask(&vip).is_ok_and(|name| name == "one")).await;
        assert!(took < Duration::from_secs(30), "{took:?}");
        proxy.stop().await;
        let left = Command::new("iptables-save").output().expect("iptables is there").stdout;
        assert!(!String::from_utf8_lossy(&left).contains("TP-"), "rules are left behind");
    });
}

#[test]
fn health_check_node_ports_count_local_endpoints() {
    in_namespace(|| async {
        let cluster = start_cluster().await;
        let client = &cluster.client;
        let proxy = start_proxy(&cluster, |_| {}).await;
        let balancer = r#"{"metadata":{"name":"NAME"},"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local",
            "ports":[{"port":80}]}}"#;
        let service = make(client, SERVICES, &balancer.replace("NAME", "web")).await;
        let port = u16::try_from(service.int("spec.healthCheckNodePort").expect("a port")).expect("a port");
        let at = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port);
        until("the port is served", || TcpStream::connect(at).is_ok()).await;
        let (head, _) = get(at, "/").await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        make(client, SLICES, &slice("web-1", "web", &["10.9.9.1", "10.9.9.2"])).await;
        let served = async || {
            let (head, body) = get(at, "/").await;
            if head.starts_with("HTTP/1.1 200") { Ok((head, body)) } else { Err(head) }
        };
        let (head, body) = stdx::wait::until_ok_await("local endpoints", DEADLINE, served).await;
        assert!(head.contains("x-load-balancing-endpoint-weight: 2"), "{head}");
        assert_eq!(
            body,
            "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\
             \"serviceProxyHealthy\": true\n}"
        );
        client.delete(&format!("{SERVICES}/web")).await;
        until("the port is closed", || TcpStream::connect(at).is_err()).await;

        // A port in use is reported as an event of the Service.
        let _taken = TcpListener::bind("0.0.0.0:31234").expect("a listener");
        let spec = balancer.replace("NAME", "taken").replace("\"ports\"", "\"healthCheckNodePort\":31234,\"ports\"");
        make(client, SERVICES, &spec).await;
        let failed = |list: &Tree| {
            list.list("items").iter().any(|event| {
                let is_failure = event.str("reason") == "FailedToStartServiceHealthcheck";
                is_failure && event.str("message").starts_with("node n1 failed to start healthcheck \"default/taken\"")
            })
        };
        client.until("/api/v1/namespaces/default/events", |_, list| failed(list)).await;
        proxy.stop().await;
    });
}

/// Prints the latency of an endpoint change, from the request to the rule in the kernel.
#[test]
fn changes_arrive_soon() {
    in_namespace(|| async {
        let cluster = start_cluster().await;
        let client = &cluster.client;
        make(client, SERVICES, r#"{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}"#).await;
        make(client, SLICES, &slice("web-1", "web", &["10.9.9.1"])).await;
        let proxy = start_proxy(&cluster, |config| config.confirm_endpoints = false).await;
        let mut nft = network::nft::Nft::open().expect("netlink");
        let mut times = Vec::new();
        for number in 0..100u8 {
            let address = format!("10.9.8.{number}");
            let value = [&[10, 9, 8, number][..], &8080u16.to_be_bytes(), &[0, 0]].concat();
            let started = Instant::now();
            set_slice(client, "web-1", "web", &[&address]).await;
            until("the endpoint is in the kernel", || {
                let elements = nft.elements(network::nft::Family::Ipv4, TABLE, "services-endpoints");
                let data = network::nft::Data::Value(value.clone());
                elements.expect("elements").iter().any(|element| element.data == data)
            })
            .await;
            times.push(started.elapsed());
        }
        times.sort();
        println!("endpoint change to kernel: p50 {:?}, p99 {:?}", times[50], times[98]);
        assert!(times[50] < Duration::from_secs(1), "{times:?}");
        proxy.stop().await;
    });
}
