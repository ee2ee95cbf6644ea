//! `tiphys dns` against a real API server with its controllers: names follow the objects.

use std::net::SocketAddr;
use std::time::Duration;

use api::{Tree, list, tree};
use cluster::dns::{DnsProcess, flags, run};
use dns::message::{Data, Message, Name, Question, Record, Type};
use testkit::{Client, Cluster};
use tokio::net::UdpSocket;

use crate::machinery::manager::{free_port, kubeconfig};
use crate::network::{CORE, make, merge};

const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

/// A server as a user runs it in place of CoreDNS, on any port.
async fn start(cluster: &Cluster, more: &[String]) -> (DnsProcess, SocketAddr) {
    let mut arguments = vec![format!("--kubeconfig={}", kubeconfig(cluster, "admin").display())];
    arguments.extend_from_slice(more);
    let flags = flags::parse(&arguments).expect("flags");
    let running = run(flags).await.unwrap_or_else(|error| panic!("{}", error.describe()));
    let address = running.addresses()[0];
    (running, address)
}

fn corefile(port: u16, more: &str) -> String {
    let plugin = "kubernetes cluster.local in-addr.arpa {\npods verified\nttl 30\n}";
    format!(".:{port} {{\nbind 127.0.0.1\n{plugin}\n{more}\n}}\n")
}

async fn started_with_file(cluster: &Cluster) -> (DnsProcess, SocketAddr) {
    let path = cluster.dir().join("Corefile");
    std::fs::write(&path, corefile(free_port().await, "")).expect("a file");
    start(cluster, &[format!("--conf={}", path.display())]).await
}

fn text(record: &Record) -> String {
    match &record.data {
        Data::A(address) => address.to_string(),
        Data::Name(name) => name.to_string(),
        Data::Srv(srv) => format!("{} {}", srv.port, srv.target),
        other => format!("{other:?}"),
    }
}

/// The response code and the sorted answers.
async fn lookup(server: SocketAddr, name: &str, qtype: Type) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let query = Message::query(1, Question::new(Name::parse(name).expect("a name"), qtype));
    socket.send_to(&query.write(512), server).await.expect("sent");
    let mut bytes = vec![0; 512];
    let length = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut bytes)).await.expect("in time");
    let response = Message::read(&bytes[..length.expect("a response")]).expect("a message");
    let mut answers: Vec<String> = response.answers.iter().map(text).collect();
    answers.sort();
    std::iter::once(response.header.rcode.to_string()).chain(answers).collect::<Vec<_>>().join(" ")
}

async fn see(server: SocketAddr, name: &str, qtype: Type, want: &str) {
    crate::until(&format!("{name} is {want}"), async || lookup(server, name, qtype).await == want).await;
}

async fn create_service(client: &Client, name: &str, spec: Tree) -> Tree {
    let object = tree! { "metadata" => tree! { "name" => name }, "spec" => spec };
    make(client, &format!("{CORE}/services"), &object).await
}

/// A pod that has an address and is ready, as a kubelet would report it.
async fn create_pod(client: &Client, name: &str, address: &str, hostname: &str) {
    let mut spec = tree! { "containers" => list![tree! { "name" => "c", "image" => "i" }], "nodeName" => "n" };
    if !hostname.is_empty() {
        spec.set("hostname", hostname);
        spec.set("subdomain", "db");
    }
    let labels = tree! { "app" => "db" };
    let object = tree! { "metadata" => tree! { "name" => name, "labels" => labels }, "spec" => spec };
    make(client, &format!("{CORE}/pods"), &object).await;
    let status = tree! {
        "phase" => "Running",
        "podIP" => address,
        "podIPs" => list![tree! { "ip" => address }],
        "conditions" => list![tree! { "type" => "Ready", "status" => "True" }],
    };
    merge(client, &format!("{CORE}/pods/{name}/status"), &tree! { "status" => status }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_follow_services_and_pods() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let (running, server) = started_with_file(&cluster).await;
    see(server, "kubernetes.default.svc.cluster.local", Type::A, "NOERROR 10.96.0.1").await;
    see(server, "1.0.96.10.in-addr.arpa", Type::PTR, "NOERROR kubernetes.default.svc.cluster.local.").await;
    let port = list![tree! { "name" => "http", "port" => 80i64 }];
    let service = create_service(&client, "web", tree! { "ports" => port.clone() }).await;
    let address = service.str("spec.clusterIP").to_string();
    see(server, "web.default.svc.cluster.local", Type::A, &format!("NOERROR {address}")).await;
    let srv = "_http._tcp.web.default.svc.cluster.local";
    assert_eq!(lookup(server, srv, Type::SRV).await, "NOERROR 80 web.default.svc.cluster.local.");
    assert_eq!(client.delete(&format!("{CORE}/services/web")).await.code, 200);
    see(server, "web.default.svc.cluster.local", Type::A, "NXDOMAIN").await;

    let headless = tree! { "clusterIP" => "None", "selector" => tree! { "app" => "db" }, "ports" => port };
    create_service(&client, "db", headless).await;
    // Endpoints on a node that does not exist are omitted.
    make(&client, "/api/v1/nodes", &tree! { "metadata" => tree! { "name" => "n" } }).await;
    create_pod(&client, "db-0", "10.244.7.1", "db-0").await;
    create_pod(&client, "db-1", "10.244.7.2", "").await;
    see(server, "db.default.svc.cluster.local", Type::A, "NOERROR 10.244.7.1 10.244.7.2").await;
    assert_eq!(lookup(server, "db-0.db.default.svc.cluster.local", Type::A).await, "NOERROR 10.244.7.1");
    assert_eq!(lookup(server, "10-244-7-2.db.default.svc.cluster.local", Type::A).await, "NOERROR 10.244.7.2");
    let ptr = lookup(server, "1.7.244.10.in-addr.arpa", Type::PTR).await;
    assert_eq!(ptr, "NOERROR db-0.db.default.svc.cluster.local.");
    see(server, "10-244-7-1.default.pod.cluster.local", Type::A, "NOERROR 10.244.7.1").await;
    let unready = tree! { "status" => tree! {
        "conditions" => list![tree! { "type" => "Ready", "status" => "False" }],
    } };
    merge(&client, &format!("{CORE}/pods/db-0/status"), &unready).await;
    see(server, "db.default.svc.cluster.local", Type::A, "NOERROR 10.244.7.2").await;
    let publishes = tree! { "spec" => tree! { "publishNotReadyAddresses" => true } };
    merge(&client, &format!("{CORE}/services/db"), &publishes).await;
    see(server, "db.default.svc.cluster.local", Type::A, "NOERROR 10.244.7.1 10.244.7.2").await;
    running.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn external_names_and_the_config_map_change_live() {
    let mut cluster = Cluster::start_whole().await;
    let client = cluster.client.clone();
    let port = free_port().await;
    let config_map = |more: &str| {
        let data = tree! { "Corefile" => corefile(port, more) };
        tree! { "metadata" => tree! { "name" => "coredns" }, "data" => data }
    };
    let hosts = |last: u8| format!("hosts /nonexistent {{\n10.0.0.{last} example.org\nfallthrough\n}}");
    make(&client, &format!("{KUBE_SYSTEM}/configmaps"), &config_map(&hosts(1))).await;
    let (running, server) = start(&cluster, &[]).await;
    let external = |to: &str| tree! { "spec" => tree! { "type" => "ExternalName", "externalName" => to } };
    create_service(&client, "ext", external("example.org").at("spec").clone()).await;
    let name = "ext.default.svc.cluster.local";
    see(server, name, Type::A, "NOERROR 10.0.0.1 example.org.").await;
    let path = format!("{KUBE_SYSTEM}/configmaps/coredns");
    merge(&client, &path, &config_map(&hosts(2))).await;
    see(server, name, Type::A, "NOERROR 10.0.0.2 example.org.").await;
    merge(&client, &path, &config_map(&format!("{}\nnonsense", hosts(3)))).await;
    merge(&client, &format!("{CORE}/services/ext"), &external("kubernetes.default.svc.cluster.local")).await;
    see(server, name, Type::A, "NOERROR 10.96.0.1 kubernetes.default.svc.cluster.local.").await;
    assert_eq!(lookup(server, "example.org", Type::A).await, "NOERROR 10.0.0.2", "the old Corefile is in force");
    merge(&client, &path, &config_map(&hosts(4))).await;
    see(server, "example.org", Type::A, "NOERROR 10.0.0.4").await;
    running.stop().await;
    cluster.stop().await;
}
