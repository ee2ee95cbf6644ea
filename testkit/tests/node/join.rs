//! A machine joins: it finds the CA by its fingerprint, requests a certificate with its token, and reconnects with it.

use api::{base64, tree};
use client::{Patch, Resource};
use cluster::component::remote::Remote;
use cluster::control_plane::in_process;
use cluster::node::request::{self, CertificateRequest};
use cluster::node::{bootstrap, join, join_objects};
use testkit::Cluster;

const TOKEN: &str = "abcdef.0123456789abcdef";
const SECRETS: Resource = Resource::core("secrets");
const NODES: Resource = Resource::core("nodes");
const MAPS: Resource = Resource::core("configmaps");

async fn make_joinable(cluster: &Cluster, url: &str, ca: &str) {
    let client = in_process::administrator(cluster.server());
    for (resource, namespace, object) in join_objects::objects(url, ca) {
        client.create(resource, namespace, &object).await.expect("made");
    }
    let text = |text: &str| base64::encode(text.as_bytes());
    let data = tree! {
        "token-id" => text("abcdef"), "token-secret" => text("0123456789abcdef"),
        "usage-bootstrap-authentication" => text("true"), "usage-bootstrap-signing" => text("true"),
        "auth-extra-groups" => text(cluster::node::token::GROUP),
    };
    let secret = tree! {
        "metadata" => tree! { "name" => "bootstrap-token-abcdef" },
        "type" => "bootstrap.kubernetes.io/token",
        "data" => data,
    };
    client.create(SECRETS, "kube-system", &secret).await.expect("a token");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_join_with_a_token() {
    let cluster = Cluster::start_whole().await;
    let url = format!("https://{}", cluster.address());
    let ca = cluster.pki().read("ca").expect("a CA bundle").expect("a CA bundle").certificate;
    make_joinable(&cluster, &url, &ca).await;

    let hash = join::fingerprints(&ca).expect("a fingerprint").remove(0);
    assert_eq!(join::discover(&url, TOKEN, &hash).await.expect("the CA"), ca);
    let other = format!("sha256:{}", "0".repeat(64));
    let refused = join::discover(&url, TOKEN, &other).await.expect_err("refused").describe();
    assert!(refused.contains("this is another cluster"), "{refused}");
    let guessed = join::discover(&url, "abcdef.fedcba9876543210", &hash).await.expect_err("refused").describe();
    assert!(guessed.contains("invalid signature for this token"), "{guessed}");

    let dir = tempfile::tempdir().expect("a directory");
    let (kubeconfig, first) = (dir.path().join("kubelet.conf"), dir.path().join("bootstrap.conf"));
    let written = api::yaml::encode(&join::bootstrap_config(&url, &ca, TOKEN));
    std::fs::write(&first, written).expect("a file");
    bootstrap::ensure(&kubeconfig, Some(&first), dir.path(), "n1").await.expect("a certificate");
    // Valid files are not requested again, and need no token.
    std::fs::remove_file(&first).expect("a file");
    bootstrap::ensure(&kubeconfig, None, dir.path(), "n1").await.expect("it is there");

    let client = Remote::read("kubelet", "kubeconfig", &kubeconfig).expect("a kubeconfig").client();
    let node = tree! { "metadata" => tree! { "name" => "n1" } };
    client.create(NODES, "", &node).await.expect("its own node");
    let foreign = tree! { "metadata" => tree! { "name" => "n2" } };
    assert!(client.create(NODES, "", &foreign).await.expect_err("not its own").is_forbidden());

    // A node gets its next certificate with its current one.
    let pair = request::request_certificate(&client, &CertificateRequest::client("n1")).await.expect("another");
    assert!(pair.certificate.contains("BEGIN CERTIFICATE") && pair.key.contains("PRIVATE KEY"));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tokens_are_explained() {
    let cluster = Cluster::start_whole().await;
    let url = format!("https://{}", cluster.address());
    let ca = cluster.pki().read("ca").expect("a CA bundle").expect("a CA bundle").certificate;
    let dir = tempfile::tempdir().expect("a directory");
    let first = dir.path().join("bootstrap.conf");
    std::fs::write(&first, api::yaml::encode(&join::bootstrap_config(&url, &ca, TOKEN))).expect("a file");
    let refused = bootstrap::ensure(&dir.path().join("kubelet.conf"), Some(&first), dir.path(), "n1").await;
    let refused = refused.expect_err("refused").describe();
    assert!(refused.contains("--bootstrap-kubeconfig: 401"), "{refused}");
}

/// A token that was stolen is worth nothing once it has expired, wherever it is used from: neither the cluster is signed
/// with it, nor does it authenticate. The certificate of a machine that has joined stays valid.
#[tokio::test(flavor = "multi_thread")]
async fn expired_tokens_are_worthless() {
    let cluster = Cluster::start_whole().await;
    let url = format!("https://{}", cluster.address());
    let ca = cluster.pki().read("ca").expect("a CA bundle").expect("a CA bundle").certificate;
    make_joinable(&cluster, &url, &ca).await;
    let hash = join::fingerprints(&ca).expect("a fingerprint").remove(0);
    join::discover(&url, TOKEN, &hash).await.expect("the CA");
    let dir = tempfile::tempdir().expect("a directory");
    let first = dir.path().join("bootstrap.conf");
    std::fs::write(&first, api::yaml::encode(&join::bootstrap_config(&url, &ca, TOKEN))).expect("a file");
    let join = async |name: &str| {
        let kubeconfig = dir.path().join(format!("{name}.conf"));
        bootstrap::ensure(&kubeconfig, Some(&first), &dir.path().join(name), name).await.map(|()| kubeconfig)
    };
    let joined = join("n1").await.expect("a certificate");

    let client = in_process::administrator(cluster.server());
    let expired = base64::encode(b"2020-01-01T00:00:00Z");
    let patch = tree! { "data" => tree! { "expiration" => expired } };
    let changed = client.patch(SECRETS, "kube-system", "bootstrap-token-abcdef", "", Patch::Merge(&patch)).await;
    changed.expect("an expired token");
    let refused = join("n2").await.expect_err("refused").describe();
    assert!(refused.contains("--bootstrap-kubeconfig: 401"), "{refused}");
    // Nothing is signed with it any more, so that no machine believes a cluster by it.
    let is_unsigned = async || {
        let info = client.get(MAPS, "kube-public", "cluster-info").await.map_err(|error| error.to_string())?;
        let is_signed = info.map("data").iter().any(|(key, _)| key == "jws-kubeconfig-abcdef");
        if is_signed { Err("it is signed".to_string()) } else { Ok(()) }
    };
    stdx::wait::until_ok_await("no signature", std::time::Duration::from_secs(60), is_unsigned).await;
    let of_node = Remote::read("kubelet", "kubeconfig", &joined).expect("a kubeconfig").client();
    of_node.create(NODES, "", &tree! { "metadata" => tree! { "name" => "n1" } }).await.expect("its own node");
}
