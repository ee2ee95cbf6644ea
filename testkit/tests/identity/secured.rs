//! Certificates that change while the server runs, TLS versions, and headers for browsers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::pki::cluster::ClusterPki;
use cluster::pki::credentials::{self, CredentialsRefresher};
use cluster::pki::kubeconfig::Kubeconfigs;
use cluster::pki::{Lifetimes, Pki};
use server::request::cors::Cors;
use testkit::{Cluster, Storage};

use crate::until;

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_while_the_server_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    // The certificates are valid for three seconds: the timer must renew them after two.
    let lifetimes = Lifetimes { ca: Duration::from_secs(3600), leaf: Duration::from_secs(3) };
    let pki = Pki::with_clock(dir.path().join("pki"), lifetimes, Arc::new(SystemTime::now)).expect("a directory");
    let own = ClusterPki::new(pki, [127, 0, 0, 1].into(), &server::Config::default(), &[]).expect("names");
    let current = own.load().expect("certificates");
    let serving = credentials::serving(&current).expect("a certificate");
    let mut cluster = Cluster::start_changed(|plan, _| {
        plan.serving = serving.clone();
        let cas = plan.authentication.clients.as_ref().expect("CA bundle");
        cas.replace(current.clients.as_deref().expect("a CA bundle")).expect("a CA bundle");
    })
    .await;
    let (ca, admin) = current.admin.clone().expect("an administrator");
    let kubeconfig = dir.path().join("kubeconfig");
    let address = cluster.address();
    let keeper = CredentialsRefresher {
        watched: vec![own.pki.dir().to_path_buf()],
        load: Box::new(move || own.load()),
        current,
        serving,
        kubeconfig: Some((Kubeconfigs::own(kubeconfig.clone()), address)),
    };
    tokio::spawn(keeper.run(cluster.server().clone()));
    let client = testkit::Client::new(address, &ca, &admin);
    let shown = client.connect().await.shown;
    until("another certificate is shown", async || client.connect().await.shown != shown).await;
    until("the kubeconfig is written again", async || kubeconfig.exists()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_tls_can_be_narrowed() {
    let mut cluster = Cluster::start_changed(|plan, _| plan.tls.only_tls13 = true).await;
    let shakes = async |versions: &[&'static rustls::SupportedProtocolVersion]| {
        let provider = server::tls::provider();
        let config = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let verifier = http_client::tls::verifier(&http_client::Trust::InsecureSkipVerify).expect("a verifier");
        let config = config.expect("versions").dangerous().with_custom_certificate_verifier(verifier);
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config.with_no_client_auth()));
        let stream = tokio::net::TcpStream::connect(cluster.address()).await.expect("the server listens");
        connector.connect("localhost".try_into().expect("a name"), stream).await.is_ok()
    };
    assert!(shakes(&[&rustls::version::TLS13]).await);
    assert!(!shakes(&[&rustls::version::TLS12]).await);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_cors_and_hsts_headers() {
    let mut cluster = Cluster::start_changed(|plan, _| {
        plan.config.cors = Cors::new(&["^https://ui.example$"]).expect("a pattern");
        plan.config.strict_transport_security = Some("max-age=7; preload".parse().expect("a value"));
    })
    .await;
    let anonymous = cluster.client_as(None);
    let reply = anonymous.raw("OPTIONS", "/api/v1/pods", &[("origin", "https://ui.example")], Vec::new()).await;
    assert_eq!(
        (reply.code, &reply.headers["access-control-allow-origin"]),
        (204, &"https://ui.example".parse().unwrap())
    );
    assert_eq!(reply.headers["access-control-allow-credentials"], "true");
    let reply = anonymous.raw("OPTIONS", "/api/v1/pods", &[("origin", "https://evil.example")], Vec::new()).await;
    assert!(reply.code == 401 && !reply.headers.contains_key("access-control-allow-origin"));
    let reply = cluster.client.raw("GET", "/version", &[("origin", "https://ui.example")], Vec::new()).await;
    assert_eq!(reply.headers["strict-transport-security"], "max-age=7; preload");
    assert!(reply.headers.contains_key("access-control-allow-origin"));
    cluster.stop().await;
    let mut plain = Cluster::start(Storage::Embedded).await;
    let reply = plain.client.raw("GET", "/version", &[("origin", "https://ui.example")], Vec::new()).await;
    let said =
        ["access-control-allow-origin", "strict-transport-security"].map(|name| reply.headers.contains_key(name));
    assert_eq!(said, [false, false]);
    plain.stop().await;
}
