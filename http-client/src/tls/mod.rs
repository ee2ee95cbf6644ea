//! The TLS configuration of a client: the CAs that it trusts, and the certificate that it presents.

mod verifier;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::ClientConfig;
pub use rustls::Error;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs as crypto};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use verifier::ServerVerifier;

/// ALPN identifiers.
pub const HTTP1: &[u8] = b"http/1.1";
/// The ALPN name of HTTP/2.
pub const HTTP2: &[u8] = b"h2";

/// The system's CA bundle on the common distributions.
pub const SYSTEM_BUNDLES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The server certificates that a client accepts.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Certificates of the system's CAs.
    System,
    /// Certificates of these CAs only.
    CaBundle(Vec<CertificateDer<'static>>),
    /// The certificate with this fingerprint, regardless of its name.
    Certificate(String),
    /// Any certificate: only if an operator has configured it explicitly, or if the server proves its identity
    /// otherwise.
    InsecureSkipVerify,
}

impl Trust {
    /// The CAs of a PEM bundle; one without any certificate is an error.
    pub fn pem(pem: &[u8]) -> Result<Trust, PemError> {
        certificates(pem).map(Trust::CaBundle)
    }
}

/// Why PEM is not a CA bundle, or not a certificate with its key.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// The file contains other data, or nothing.
    #[error("no certificate found")]
    NoCertificate,
    /// A certificate is not valid PEM.
    #[error(transparent)]
    Certificate(pem::Error),
    /// There is no key, or one of an unknown kind.
    #[error("the key cannot be read: {0}")]
    Key(pem::Error),
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(PemError::Certificate)?;
    if all.is_empty() { Err(PemError::NoCertificate) } else { Ok(all) }
}

/// A client certificate with its key.
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
    /// From a parsed chain, the client's own certificate first.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Identity {
        Identity { chain, key }
    }

    /// Whether two identities present the same certificate.
    pub fn has_same_certificate(&self, other: &Identity) -> bool {
        self.chain == other.chain
    }

    /// From PEM.
    pub fn pem(chain: &[u8], key: &[u8]) -> Result<Identity, PemError> {
        let chain = certificates(chain)?;
        Ok(Identity { chain, key: PrivateKeyDer::from_pem_slice(key).map_err(PemError::Key)? })
    }
}

/// The cryptography provider of the process.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(crypto::default_provider())).clone()
}

/// The configuration of connections that offer these ALPN protocols.
pub fn config(trust: &Trust, identity: Option<&Identity>, alpn: &[&[u8]]) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier(trust)?);
    let config = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?,
        None => builder.with_no_client_auth(),
    };
    Ok(with_alpn(&config, alpn))
}

/// For a configuration with other versions or certificates.
pub fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    Ok(Arc::new(ServerVerifier::new(trust)?))
}

/// The same trust and certificate with other ALPN protocols.
pub fn with_alpn(config: &ClientConfig, alpn: &[&[u8]]) -> ClientConfig {
    let mut config = config.clone();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// The CAs that the system trusts: the bundle of `SSL_CERT_FILE`, or the first that exists. None if there is none.
pub fn system_bundle() -> Option<Vec<CertificateDer<'static>>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut paths = named.into_iter().chain(SYSTEM_BUNDLES.iter().map(PathBuf::from));
    let bundle = paths.find_map(|path| std::fs::read(path).ok())?;
    Some(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok).collect())
}

/// `sha256:` and the hash of a certificate in hexadecimal digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = digest(&SHA256, certificate);
    let hex = stdx::hex::encode(hash.as_ref());
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests;
