//! TLS: a certificate that can be replaced while running, a verifier that accepts any client certificate whose owner
//! has its key, and the supported versions and ciphers.

pub mod client;

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, cipher_suite};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme, SupportedCipherSuite, version,
};

pub use http_client::tls::{fingerprint, provider};

/// The server's certificate. The next handshake uses a replacement; open connections continue.
#[derive(Debug)]
pub struct Serving(ArcSwap<CertifiedKey>);

impl Serving {
    /// A certificate chain with its key.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Serving, Error> {
        Ok(Serving(ArcSwap::from_pointee(certified(chain, key)?)))
    }

    /// Replaces the certificate. A certificate that does not match its key changes nothing.
    pub fn replace(&self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<(), Error> {
        self.0.store(Arc::new(certified(chain, key)?));
        Ok(())
    }
}

impl Serving {
    /// The fingerprint of the current certificate: `sha256:` and hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        self.0.load().cert.first().map(|leaf| fingerprint(leaf)).unwrap_or_default()
    }
}

fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<CertifiedKey, Error> {
    CertifiedKey::from_der(chain, key, &provider())
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// The supported TLS versions and ciphers.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub only_tls13: bool,
    /// None: all that are safe.
    pub ciphers: Option<Vec<SupportedCipherSuite>>,
}

/// A configuration that names no CAs to clients.
pub fn server_config(serving: Arc<Serving>, options: &Options) -> Result<Arc<ServerConfig>, Error> {
    server_config_with_hints(serving, options, Vec::new())
}

/// `hints` name CAs whose certificates are identities. They only help clients to choose: any certificate completes the
/// handshake.
pub(crate) fn server_config_with_hints(
    serving: Arc<Serving>,
    options: &Options,
    hints: Vec<DistinguishedName>,
) -> Result<Arc<ServerConfig>, Error> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if let Some(ciphers) = &options.ciphers {
        provider.cipher_suites.clone_from(ciphers);
    }
    let provider = Arc::new(provider);
    let verifier = Arc::new(AnyCertificate { provider: provider.clone(), hints });
    let versions = if options.only_tls13 { &[&version::TLS13][..] } else { &[&version::TLS13, &version::TLS12][..] };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A name that is not that of a cipher suite which may be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    #[error("the cipher suite {0} is insecure and not supported")]
    Unsafe(String),
    #[error("unknown cipher suite {0:?}")]
    Unknown(String),
}

/// Suites by Go's names. Those of TLS 1.3 cannot be disabled in Go: they stay if none of them is named.
pub fn cipher_suites(names: &[&str]) -> Result<Vec<SupportedCipherSuite>, CipherError> {
    let mut suites = names.iter().map(|name| cipher(name)).collect::<Result<Vec<_>, _>>()?;
    if !suites.iter().any(|suite| suite.tls13().is_some()) {
        suites.extend(ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_some()));
    }
    Ok(suites)
}

fn cipher(name: &str) -> Result<SupportedCipherSuite, CipherError> {
    Ok(match name {
        "TLS_AES_128_GCM_SHA256" => cipher_suite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_256_GCM_SHA384" => cipher_suite::TLS13_AES_256_GCM_SHA384,
        "TLS_CHACHA20_POLY1305_SHA256" => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => {
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
        _ if name.contains("_CBC_") || name.contains("_RC4_") || name.starts_with("TLS_RSA_") => {
            return Err(CipherError::Unsafe(name.to_string()));
        }
        _ => return Err(CipherError::Unknown(name.to_string())),
    })
}

#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Judged per request by the authenticator.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_go_by_go_s_names() {
        let count = |names: &[&str]| cipher_suites(names).map(|suites| suites.len()).map_err(|error| error.to_string());
        assert_eq!(count(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]), Ok(4));
        assert_eq!(count(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_AES_128_GCM_SHA256"]), Ok(2));
        assert_eq!(count(&["TLS_X"]), Err("unknown cipher suite \"TLS_X\"".to_string()));
        assert!(count(&["TLS_RSA_WITH_AES_128_CBC_SHA"]).is_err_and(|why| why.contains("is insecure")));
    }
}
