//! Damaged addresses and ports of Services, and their repair by the server without controllers.

use api::{Tree, list, tree};
use testkit::{Client, Cluster, Storage};

use super::{CORE, gone, make, see, service};

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

async fn told(client: &Client, namespace: &str, name: &str, reason: &str, message: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let is_it = |event: &Tree| {
        let of = event.str("involvedObject.name") == name && event.str("type") == "Warning";
        of && event.str("reason") == reason && event.str("message") == message
    };
    see(client, &path, &format!("{reason}: {message}"), |events| events.list("items").iter().any(is_it)).await;
}

async fn make_service(client: &Client, name: &str) -> String {
    let spec = tree! { "type" => "NodePort", "ports" => list![tree! { "port" => 80 }] };
    make(client, &format!("{CORE}/services"), &service(name, spec)).await.str("spec.clusterIP").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn service_addresses_are_repaired() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let ip = make_service(client, "web").await;
    let path = format!("{ADDRESSES}/{ip}");
    let old = client.get(&path).await.tree();
    assert_eq!(client.delete(&path).await.code, 200);
    let seen = see(client, &path, "made again", |address| {
        address.has("spec") && address.str("metadata.uid") != old.str("metadata.uid")
    })
    .await;
    assert_eq!(seen.at("spec"), old.at("spec"));
    assert_eq!(seen.at("metadata.labels"), old.at("metadata.labels"));
    let text = format!("Cluster IP [IPv4]: {ip} is not allocated; repairing");
    told(client, "default", "web", "ClusterIPNotAllocated", &text).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaked_addresses_are_removed() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let ip = make_service(client, "web").await;
    let mut stray = client.get(&format!("{ADDRESSES}/{ip}")).await.tree();
    let other = if ip == "10.96.0.200" { "10.96.0.201" } else { "10.96.0.200" };
    let labels = stray.at("metadata.labels").clone();
    stray.set("metadata", tree! { "name" => other, "labels" => labels });
    make(client, ADDRESSES, &stray).await;
    gone(client, &format!("{ADDRESSES}/{other}")).await;
    let text = format!("IPAddress: {other} for Service default/web has a wrong reference; cleaning up");
    told(client, "default", other, "IPAddressWrongReference", &text).await;
    assert_eq!(client.get(&format!("{ADDRESSES}/{ip}")).await.code, 200);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_outside_of_the_range_are_reported() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    make_service(&cluster.client, "web").await;
    let seen = cluster.client.get(&format!("{CORE}/services/web")).await.tree();
    let port = seen.list("spec.ports")[0].int("nodePort").expect("a node port");
    cluster.restart_with(server::Config { node_ports: 20000..=20100, ..server::Config::default() }).await;
    let text = format!("Port {port} is not within the port range 20000-20100; please recreate service");
    told(&cluster.client, "default", "web", "PortOutOfRange", &text).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sole_server_on_the_loopback_keeps_no_earlier_endpoints() {
    let at = |address: [u8; 4]| server::Config { advertise_address: address.into(), ..server::Config::default() };
    let mut cluster = Cluster::start_with(Storage::Embedded, at([10, 88, 0, 1]), async |_| {}).await;
    let paths = [
        format!("{CORE}/endpoints/kubernetes"),
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes".to_string(),
    ];
    for (address, code) in [([10, 88, 0, 1], 200), ([127, 0, 0, 1], 404), ([10, 88, 0, 2], 200)] {
        cluster.restart_with(at(address)).await;
        for path in &paths {
            assert_eq!(cluster.client.get(path).await.code, code, "{address:?} {path}");
        }
    }
    cluster.stop().await;
}
