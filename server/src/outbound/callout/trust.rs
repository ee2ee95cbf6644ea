//! The CAs that a client trusts, and the certificate that it presents.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::tls;

/// The system's CA bundle on the common distributions.
const SYSTEM_BUNDLES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

#[derive(Debug, Clone)]
pub enum Trust {
    /// The CAs that the system trusts.
    System,
    /// These CAs and no others.
    CaBundle(Vec<CertificateDer<'static>>),
    /// The one certificate of this fingerprint, whatever name is in it.
    Certificate(String),
    /// Any certificate: only if an operator has configured it explicitly.
    Anybody,
}

impl Trust {
    /// The CAs of a PEM bundle; one without any certificate is an error.
    pub fn pem(pem: &[u8]) -> Result<Trust, String> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let all = all.map_err(|error| error.to_string())?;
        if all.is_empty() { Err("no certificate found".to_string()) } else { Ok(Trust::CaBundle(all)) }
    }
}

/// A certificate with its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Identity {
        Identity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl Identity {
    pub fn pem(chain: &[u8], key: &[u8]) -> Result<Identity, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| error.to_string())?;
        if chain.is_empty() {
            return Err("no certificate found".to_string());
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key cannot be read: {error}"))?;
        Ok(Identity { chain, key })
    }
}

pub fn config(trust: &Trust, identity: Option<&Identity>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier(trust)?);
    let mut config = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    match trust {
        Trust::Anybody => Ok(tls::any_server()),
        Trust::Certificate(fingerprint) => {
            Ok(Arc::new(FingerprintVerifier { fingerprint: fingerprint.clone(), any: tls::any_server() }))
        }
        Trust::CaBundle(cas) => Pinned::verifier(cas.clone()),
        Trust::System => Pinned::verifier(system_authorities()),
    }
}

/// How a handshake is signed, which does not depend on who is trusted.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.any.verify_tls12_signature(message, cert, dss)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.any.verify_tls13_signature(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.any.supported_verify_schemes()
        }
    };
}

/// Takes one certificate, by its fingerprint.
#[derive(Debug)]
struct FingerprintVerifier {
    fingerprint: String,
    any: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for FingerprintVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match tls::fingerprint(leaf) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    signatures!();
}

fn system_authorities() -> Vec<CertificateDer<'static>> {
    let bundle = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok).collect()
}

/// Verifies chains, and accepts a server certificate that is itself in the bundle: a bundle often holds nothing but the
/// self-signed certificate of the one server it is for.
#[derive(Debug)]
struct Pinned {
    cas: Vec<CertificateDer<'static>>,
    /// None if no CA is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
    any: Arc<dyn ServerCertVerifier>,
}

impl Pinned {
    fn verifier(cas: Vec<CertificateDer<'static>>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        let mut roots = RootCertStore::empty();
        // One that cannot be used as a root may still be the server's own.
        for ca in &cas {
            let _ = roots.add(ca.clone());
        }
        let chains = if roots.is_empty() {
            None
        } else {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), tls::provider());
            Some(builder.build().map_err(|error| Error::General(error.to_string()))?)
        };
        Ok(Arc::new(Pinned { cas, chains, any: tls::any_server() }))
    }

    fn verify_own(&self, leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
        let bad = |why| Error::InvalidCertificate(why);
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| bad(CertificateError::BadEncoding))?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if seconds < validity.not_before.timestamp() || seconds > validity.not_after.timestamp() {
            return Err(bad(CertificateError::Expired));
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(leaf)?, name)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.cas.iter().any(|own| own.as_ref() == leaf.as_ref()) {
            return self.verify_own(leaf, name, now).map(|()| ServerCertVerified::assertion());
        }
        match &self.chains {
            Some(chains) => chains.verify_server_cert(leaf, intermediates, name, ocsp, now),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    signatures!();
}
