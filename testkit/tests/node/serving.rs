//! The serving certificate of a kubelet, signed by the cluster (`serverTLSBootstrap`): requested at first, and again
//! when the node has another address.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use api::{Tree, list, tree};
use cluster::control_plane::in_process::LocalClients;
use cluster::node::request::{self, CertificateRequest};
use cluster::node::serving;
use kubelet::Config;
use server::tls::Serving;
use testkit::{Client, Cluster};
use tokio::sync::watch;

use crate::until;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn node(addresses: &[&str]) -> Option<Arc<Tree>> {
    let address = |address: &&str| tree! { "type" => "InternalIP", "address" => *address };
    let mut all: Vec<Tree> = addresses.iter().map(address).collect();
    all.push(tree! { "type" => "Hostname", "address" => "host-1" });
    Some(Arc::new(tree! { "status" => tree! { "addresses" => Tree::List(all) } }))
}

/// Approves the only pending request.
async fn approve(client: &Client) {
    let waits = |request: &&Tree| request.list("status.conditions").is_empty();
    let all = client.until(REQUESTS, |_, all| all.list("items").iter().any(|request| waits(&request))).await;
    let mut request = all.list("items").iter().find(waits).cloned().expect("a request");
    assert_eq!(request.str("spec.signerName"), request::SERVING_SIGNER);
    assert_eq!(request.str("spec.username"), "system:node:n1");
    let condition = tree! { "type" => "Approved", "status" => "True", "reason" => "Test", "message" => "yes" };
    request.child("status").set("conditions", list![condition]);
    let path = format!("{REQUESTS}/{}/approval", request.str("metadata.name"));
    assert_eq!(client.put(&path, &request).await.code, 200);
}

/// Whether the certificate that is kept is for all of these.
fn is_for(dir: &Path, addresses: &[&str]) -> bool {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().expect("an address")).collect();
    let wanted =
        CertificateRequest { names: vec!["host-1".to_string()], addresses, ..CertificateRequest::client("n1") };
    request::read_certificate(&request::current(dir, "kubelet-server")).is_some_and(|kept| kept.fits(&wanted))
}

#[tokio::test(flavor = "multi_thread")]
async fn port_uses_the_certificate_signed_by_the_cluster() {
    let cluster = Cluster::start_whole().await;
    let acting = LocalClients::new(cluster.server()).client("kubelet", "system:node:n1".to_string(), &["system:nodes"]);
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = Config { node_name: "n1".to_string(), ..Config::default() };
    config.certificates.dir = Some(dir.path().to_path_buf());
    let first = cluster::pki::self_signed("n1", [127, 0, 0, 1].into()).expect("a certificate");
    let parts = || Some((cluster::pki::certificates(&first).ok()?, cluster::pki::private_key(&first).ok()?));
    let (chain, key) = parts().expect("a pair");
    let shown = Arc::new(Serving::new(chain, key).expect("a certificate"));
    let (object, seen) = watch::channel(None);
    let start = || tokio::spawn(serving::rotated(&config, &acting, shown.clone(), seen.clone()).run());
    let running = start();

    let own = shown.fingerprint();
    object.send_replace(node(&["10.0.0.1"]));
    approve(&cluster.client).await;
    until("the port shows the signed one", async || shown.fingerprint() != own).await;
    assert!(is_for(dir.path(), &["10.0.0.1"]));

    let before = shown.fingerprint();
    object.send_replace(node(&["10.0.0.1", "10.0.0.2"]));
    approve(&cluster.client).await;
    until("the port shows one for both addresses", async || shown.fingerprint() != before).await;
    assert!(is_for(dir.path(), &["10.0.0.1", "10.0.0.2"]));
    running.abort();

    // The next kubelet uses the existing certificate, although it has too few addresses by now.
    let signed = shown.fingerprint();
    let (chain, key) = parts().expect("a pair");
    shown.replace(chain, key).expect("replaced");
    object.send_replace(node(&["10.0.0.3"]));
    let running = start();
    until("the kept one is shown at once", async || shown.fingerprint() == signed).await;
    approve(&cluster.client).await;
    until("and another after that", async || shown.fingerprint() != signed).await;
    assert!(is_for(dir.path(), &["10.0.0.3"]));
    running.abort();
}
