//! Which server certificates are accepted. The signature of the handshake is always verified: a server must have the key
//! of its certificate.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Trust, fingerprint, provider, system_bundle};

#[derive(Debug)]
pub(super) struct ServerVerifier {
    accepted: Policy,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Policy {
    Any,
    Fingerprint(String),
    Bundle(Bundle),
}

impl ServerVerifier {
    pub(super) fn new(trust: &Trust) -> Result<ServerVerifier, Error> {
        let accepted = match trust {
            Trust::InsecureSkipVerify => Policy::Any,
            Trust::Certificate(fingerprint) => Policy::Fingerprint(fingerprint.clone()),
            Trust::CaBundle(cas) => Policy::Bundle(Bundle::new(cas.clone())?),
            Trust::System => Policy::Bundle(Bundle::new(system_bundle().unwrap_or_default())?),
        };
        Ok(ServerVerifier { accepted, algorithms: provider().signature_verification_algorithms })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.accepted {
            Policy::Any => Ok(ServerCertVerified::assertion()),
            Policy::Fingerprint(wanted) if fingerprint(leaf) == *wanted => Ok(ServerCertVerified::assertion()),
            Policy::Fingerprint(_) => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
            Policy::Bundle(bundle) => bundle.verify(leaf, intermediates, name, ocsp, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies chains, and accepts a server certificate that is itself in the bundle, as Go does: a bundle often holds
/// nothing but the self-signed certificate of its one server.
#[derive(Debug)]
struct Bundle {
    cas: Vec<CertificateDer<'static>>,
    /// None if no CA is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
}

impl Bundle {
    fn new(cas: Vec<CertificateDer<'static>>) -> Result<Bundle, Error> {
        let mut roots = RootCertStore::empty();
        // One that cannot be used as a root may still be the server's own.
        for ca in &cas {
            let _ = roots.add(ca.clone());
        }
        let chains = if roots.is_empty() {
            None
        } else {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
            Some(builder.build().map_err(|error| Error::General(error.to_string()))?)
        };
        Ok(Bundle { cas, chains })
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.cas.iter().any(|own| own.as_ref() == leaf.as_ref()) {
            return verify_own(leaf, name, now).map(|()| ServerCertVerified::assertion());
        }
        match &self.chains {
            Some(chains) => chains.verify_server_cert(leaf, intermediates, name, ocsp, now),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }
}

/// Validity and name of a certificate that needs no chain.
fn verify_own(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let bad = |why| Error::InvalidCertificate(why);
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| bad(CertificateError::BadEncoding))?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if seconds < validity.not_before.timestamp() || seconds > validity.not_after.timestamp() {
        return Err(bad(CertificateError::Expired));
    }
    rustls::client::verify_server_name(&ParsedCertificate::try_from(leaf)?, name)
}
