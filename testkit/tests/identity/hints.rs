//! The CA names in a handshake: browsers and Go choose a certificate by them. They decide nothing.

use std::sync::Arc;

use cluster::pki::Pki;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use stdx::sync::Mutex;
use testkit::{Cluster, Storage};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::authentication::{account_token, bearer, certificate, known, refused};

/// Shows no certificate, and keeps what the server named.
#[derive(Debug, Default)]
struct CaHints(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for CaHints {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock() = hints.iter().map(|hint| hint.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

async fn named(cluster: &Cluster) -> Vec<Vec<u8>> {
    let ca = cluster.pki().read("ca").expect("a CA").expect("a CA");
    let mut tls = testkit::client::tls(&ca, None);
    let named = Arc::new(CaHints::default());
    tls.client_auth_cert_resolver = named.clone();
    let stream = TcpStream::connect(cluster.address()).await.expect("the server listens");
    let name = ServerName::from(cluster.address().ip());
    TlsConnector::from(Arc::new(tls)).connect(name, stream).await.expect("TLS");
    named.0.lock().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn client_ca_hints_are_sent_and_other_certificates_accepted() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let ca = cluster.pki().read("ca").expect("a CA").expect("a CA");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cluster::pki::certificates(&ca).expect("a CA").remove(0)).expect("a CA");
    let hints = named(&cluster).await;
    assert!(hints.iter().any(|hint| hint.ends_with(roots.roots[0].subject.as_ref())), "{hints:?}");
    // A certificate that none of them has signed, beside a token that is good.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let foreign = Pki::open(dir.path().join("pki")).expect("a PKI");
    foreign.ensure_ca("ca", "elsewhere").expect("a CA");
    let stranger = cluster.client_as(Some(&certificate(&foreign, "ca", "stranger", "")));
    refused(&stranger, &[], "the certificate is no identity").await;
    let token = bearer(&account_token(&cluster.client).await);
    let robot = "system:serviceaccount:default:robot system:serviceaccounts,system:serviceaccounts:default,system:authenticated";
    known(&stranger, &[("authorization", &token)], robot).await;
    cluster.stop().await;
}
