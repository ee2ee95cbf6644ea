//! `kube-controller-manager` against an API server over HTTPS.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use api::{Tree, tree};
use cluster::controller_manager::{self, flags};
use cluster::pki::CertificateAndKey;
use testkit::{Client, Cluster, Storage};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// The kubeconfig of a client of the cluster, in a file.
pub fn kubeconfig(cluster: &Cluster, client: &str) -> PathBuf {
    let pki = cluster.pki();
    let read = |file: &str| pki.read(file).expect("a file").expect("a certificate");
    let url = format!("https://{}", cluster.address());
    let text = cluster::pki::kubeconfig::write(&url, &read("ca").certificate, client, &read(client));
    let path = cluster.dir().join(format!("{client}.conf"));
    std::fs::write(&path, text).expect("a file");
    path
}

async fn manager(cluster: &Cluster, more: &[&str]) -> cluster::component::ComponentHandle {
    let config = kubeconfig(cluster, "controller-manager");
    let ca = cluster.pki().dir().join("ca.crt");
    let mut arguments: Vec<String> = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .iter()
        .map(|flag| format!("--{flag}={}", config.display()))
        .collect();
    arguments.push(format!("--root-ca-file={}", ca.display()));
    arguments.push(format!("--client-ca-file={}", ca.display()));
    arguments.push(format!("--tls-cert-file={}", cluster.pki().dir().join("apiserver.crt").display()));
    arguments.push(format!("--tls-private-key-file={}", cluster.pki().dir().join("apiserver.key").display()));
    let usual = [
        "--bind-address=127.0.0.1",
        "--use-service-account-credentials",
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1s",
        "--leader-elect-retry-period=200ms",
    ];
    arguments.extend(usual.iter().chain(more).map(ToString::to_string));
    let mut flags = flags::parse(&arguments).expect("flags");
    flags.common.secure_port = free_port().await;
    controller_manager::run(flags).await.expect("it starts")
}

pub async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0)).await;
    listener.expect("a socket").local_addr().expect("an address").port()
}

async fn make_namespace(client: &Client, name: &str) {
    let namespace = tree! { "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => name } };
    assert_eq!(client.post("/api/v1/namespaces", &namespace).await.code, 201);
}

async fn default_account(client: &Client, namespace: &str) -> Tree {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    crate::until("the default account", async || client.get(&path).await.code == 200).await;
    client.get(&path).await.tree()
}

async fn holder(client: &Client) -> String {
    let lease = client.get(LEASE).await.tree();
    lease.str("spec.holderIdentity").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_act_as_their_own_accounts_and_one_manager_leads() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = cluster.client.clone();
    let first = manager(&cluster, &[]).await;
    make_namespace(&client, "one").await;
    let account = default_account(&client, "one").await;
    assert_eq!(account.list("metadata.managedFields").len(), 0, "an account without fields has no owner of them");
    let accounts = client.get("/api/v1/namespaces/kube-system/serviceaccounts").await.tree();
    let named = |name: &str| accounts.list("items").iter().any(|account| account.str("metadata.name") == name);
    assert!(named("service-account-controller"), "it was made for the controller");
    let leader = holder(&client).await;
    assert!(!leader.is_empty());
    let events = client.get("/api/v1/namespaces/kube-system/events").await.tree();
    let elected = events.list("items").iter().find(|event| event.str("reason") == "LeaderElection").expect("an event");
    assert_eq!(elected.str("message"), format!("{leader} became leader"));
    assert_eq!(elected.str("involvedObject.kind"), "Lease");
    assert_eq!(elected.str("source.component"), "kube-controller-manager");
    // A second manager waits, and works once the first has stopped.
    let second = manager(&cluster, &[]).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(holder(&client).await, leader, "the first one renews");
    first.stop().await.expect("it ends");
    make_namespace(&client, "two").await;
    default_account(&client, "two").await;
    assert_ne!(holder(&client).await, leader);
    second.stop().await.expect("it ends");
    assert_eq!(holder(&client).await, "", "it was given back");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_exits_when_it_loses_its_lease() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = cluster.client.clone();
    let mut running = manager(&cluster, &[]).await;
    crate::until("it leads", async || client.get(LEASE).await.code == 200).await;
    let stolen = r#"{"spec":{"holderIdentity":"other","leaseDurationSeconds":60}}"#;
    assert_eq!(client.patch(LEASE, "merge", stolen).await.code, 200);
    let ended = tokio::time::timeout(testkit::client::DEADLINE, running.ended()).await.expect("in time");
    assert!(ended.expect_err("an error").describe().contains("leader election lost"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn port_reloads_its_files() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let pki = cluster.pki();
    let pair = |file: &str| -> CertificateAndKey { pki.read(file).expect("a file").expect("a certificate") };
    let directory = cluster.dir().join("port");
    std::fs::create_dir(&directory).expect("a directory");
    let cas = directory.join("clients.crt");
    let stranger = cluster::pki::self_signed("stranger", IpAddr::from([127, 0, 0, 1])).expect("a certificate");
    std::fs::write(&cas, &stranger.certificate).expect("a file");
    let flag = format!("--client-ca-file={}", cas.display());
    let running = manager(&cluster, &["--leader-elect=false", &flag]).await;
    let admin = Client::as_user(running.address.expect("a port"), &pair("ca"), Some(&pair("admin")));
    assert_eq!(admin.get("/metrics").await.code, 401, "an unknown user");
    std::fs::write(&cas, "no certificate").expect("a file");
    std::fs::write(&cas, &pair("ca").certificate).expect("a file");
    crate::until("it is known", async || admin.get("/metrics").await.code == 200).await;
    running.stop().await.expect("it ends");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn port_authorizes_requests() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let running = manager(&cluster, &["--leader-elect=false"]).await;
    let address = running.address.expect("a port");
    let pki = cluster.pki();
    let pair = |file: &str| -> CertificateAndKey { pki.read(file).expect("a file").expect("a certificate") };
    let to = |user: Option<&CertificateAndKey>| Client::as_user(address, &pair("ca"), user);
    let anonymous = to(None);
    assert_eq!(anonymous.get("/healthz").await.code, 200);
    assert_eq!(anonymous.get("/healthz/serviceaccount-controller").await.code, 403, "only the root is for everybody");
    assert_eq!(anonymous.get("/metrics").await.code, 403);
    let admin = to(Some(&pair("admin")));
    let text = String::from_utf8(admin.get("/metrics").await.bytes.to_vec()).expect("text");
    assert!(text.contains("workqueue_adds_total{name=\"serviceaccount-controller\"}"), "{text}");
    assert_eq!(admin.get("/healthz/serviceaccount-controller").await.code, 200);
    assert_eq!(admin.get("/healthz/no-such-controller").await.code, 404);
    // A trusted certificate of a user whom the API server does not authorize.
    assert_eq!(to(Some(&pair("scheduler"))).get("/metrics").await.code, 403);
    // The API server verifies a token.
    let request = tree! {
        "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest", "spec" => tree! {},
    };
    default_account(&cluster.client, "default").await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = cluster.client.post(path, &request).await.tree().str("status.token").to_string();
    assert_eq!(anonymous.get_with("/metrics", &token).await.code, 403);
    assert_eq!(anonymous.get_with("/metrics", "no token").await.code, 401);
    let role = tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1", "kind" => "ClusterRoleBinding",
        "metadata" => tree! { "name" => "monitoring" },
        "roleRef" => tree! {
            "apiGroup" => "rbac.authorization.k8s.io", "kind" => "ClusterRole", "name" => "system:monitoring",
        },
        "subjects" => api::list![tree! { "kind" => "ServiceAccount", "name" => "default", "namespace" => "default" }],
    };
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(cluster.client.post(bindings, &role).await.code, 201);
    // A refusal is kept for some seconds.
    crate::until("it is allowed", async || anonymous.get_with("/metrics", &token).await.code == 200).await;
    running.stop().await.expect("it ends");
    cluster.stop().await;
}
