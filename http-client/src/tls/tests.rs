//! Which certificates a client accepts, over real handshakes.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;

struct Server {
    certificate: CertificateDer<'static>,
    config: Arc<ServerConfig>,
}

fn server(params: CertificateParams, issuer: Option<&Issuer<'_, KeyPair>>) -> Server {
    let key = KeyPair::generate().expect("a key");
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer),
        None => params.self_signed(&key),
    };
    let certificate = certificate.expect("a certificate").der().clone();
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config =
        config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate.clone()], key.into());
    Server { certificate, config: Arc::new(config.expect("a key that fits")) }
}

fn params(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_string()]).expect("a name")
}

fn ca() -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let mut params = params("ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    (certificate, Issuer::new(params, key))
}

/// Whether the client accepts the server under this name.
fn accepts(trust: Trust, server: &Server, name: &'static str) -> bool {
    let config = config(&trust, None, &[HTTP1]).expect("a configuration");
    let name = rustls::pki_types::ServerName::try_from(name).expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut server = ServerConnection::new(server.config.clone()).expect("a server");
    for _ in 0..4 {
        let mut flight = Vec::new();
        client.write_tls(&mut flight).expect("a buffer");
        server.read_tls(&mut flight.as_slice()).expect("a buffer");
        server.process_new_packets().ok();
        let mut flight = Vec::new();
        server.write_tls(&mut flight).expect("a buffer");
        client.read_tls(&mut flight.as_slice()).expect("a buffer");
        if client.process_new_packets().is_err() {
            return false;
        }
    }
    !client.is_handshaking()
}

#[test]
fn trust_decides_which_certificates_are_accepted() {
    let (root, issuer) = ca();
    let (other, _) = ca();
    let signed = server(params("a.example"), Some(&issuer));
    let own = server(params("a.example"), None);
    let mut expired = params("a.example");
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = server(expired, None);
    let bundle = |one: &CertificateDer<'static>| Trust::CaBundle(vec![one.clone()]);
    let pinned = |server: &Server| Trust::Certificate(fingerprint(&server.certificate));
    let cases = [
        ("its CA", bundle(&root), &signed, "a.example", true),
        ("its CA, another name", bundle(&root), &signed, "b.example", false),
        ("another CA", bundle(&other), &signed, "a.example", false),
        ("no CA", Trust::CaBundle(Vec::new()), &signed, "a.example", false),
        ("itself", bundle(&own.certificate), &own, "a.example", true),
        ("itself, another name", bundle(&own.certificate), &own, "b.example", false),
        ("itself, expired", bundle(&expired.certificate), &expired, "a.example", false),
        ("its fingerprint", pinned(&own), &own, "b.example", true),
        ("another fingerprint", pinned(&signed), &own, "a.example", false),
        ("anybody", Trust::InsecureSkipVerify, &expired, "b.example", true),
    ];
    for (case, trust, server, name, want) in cases {
        assert_eq!(accepts(trust, server, name), want, "{case}");
    }
}

#[test]
fn pem_without_a_certificate_is_an_error() {
    assert_eq!(Trust::pem(b"").expect_err("nothing").to_string(), "no certificate found");
    assert!(Identity::pem(b"x", b"x").is_err());
}
