//! The TLS configuration of registry clients.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::super::error::{Error, Result};
use super::hosts::Host;

/// The CA bundles of common distributions.
const SYSTEM_BUNDLES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())).clone()
}

/// Trusts the machine's CAs and those that are configured for this host.
pub(super) fn config(host: &Host) -> Result<Arc<ClientConfig>> {
    let mut roots = system_roots().clone();
    for path in &host.ca_files {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| bad(path, &error))?;
        }
    }
    let identity = match &host.identity {
        Some((chain, key)) => {
            let pem = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
            Some((certificates(chain)?, pem))
        }
        None => None,
    };
    let named = host.identity.as_ref().map_or(Path::new("TLS"), |(chain, _)| chain.as_path());
    build(roots, identity, host.skip_verify).map(Arc::new).map_err(|error| bad(named, &error))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn build(roots: RootCertStore, identity: Option<Identity>, skip_verify: bool) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match skip_verify {
        true => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate)),
        false => builder.with_root_certificates(roots),
    };
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| bad(path, &error))?;
    let all: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| bad(path, &error))?;
    if all.is_empty() { Err(bad(path, &"contains no certificate")) } else { Ok(all) }
}

fn bad(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Hosts { path: path.to_owned(), why: why.to_string() }
}

fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
        let paths = named.into_iter().chain(SYSTEM_BUNDLES.iter().map(Into::into));
        let bundle = paths.into_iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
        roots
    })
}

/// For `skip_verify`: accepts any certificate, but verifies that the server has its key.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
