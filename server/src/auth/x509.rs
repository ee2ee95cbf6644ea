//! Client certificates. The handshake takes any chain; whether it is good is judged here, per request,
//! so that an expired or foreign certificate is an answer and not a broken connection.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::Map;
use kinds::User;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::token::Tokens;

pub struct Authenticator {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// None where no key was given: then there are no service account tokens.
    pub tokens: Option<Tokens>,
}

/// The certificates that a connection's client has shown, and who it was found to be.
#[derive(Debug, Default)]
pub struct ClientChain {
    certificates: Vec<CertificateDer<'static>>,
    /// Set by the first request: the signatures of a chain do not change, only the time does.
    known: OnceLock<Known>,
}

#[derive(Debug)]
struct Known {
    user: Arc<User>,
    /// Seconds between which every certificate of the chain is valid.
    from: i64,
    until: i64,
}

impl ClientChain {
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> ClientChain {
        ClientChain { certificates, known: OnceLock::new() }
    }
}

impl Authenticator {
    /// Certificates signed by these authorities are identities; none, and there are no identities.
    pub fn new(
        authorities: &[CertificateDer<'static>],
        provider: Arc<CryptoProvider>,
    ) -> Result<Authenticator, rustls::Error> {
        if authorities.is_empty() {
            return Ok(Authenticator { verifier: None, tokens: None });
        }
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority.clone())?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Authenticator { verifier: Some(verifier), tokens: None })
    }

    pub fn with_tokens(self, tokens: Tokens) -> Authenticator {
        Authenticator { tokens: Some(tokens), ..self }
    }

    /// The user of a chain that is good now: CN is the name, O are the groups.
    pub fn identify(&self, chain: &ClientChain, now: i64) -> Option<Arc<User>> {
        let known = chain.known.get().filter(|known| (known.from..=known.until).contains(&now));
        if let Some(known) = known {
            return Some(known.user.clone());
        }
        let known = self.judge(&chain.certificates, now)?;
        Some(chain.known.get_or_init(|| known).user.clone())
    }

    fn judge(&self, chain: &[CertificateDer<'static>], now: i64) -> Option<Known> {
        let (leaf, intermediates) = chain.split_first()?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).ok()?));
        self.verifier.as_ref()?.verify_client_cert(leaf, intermediates, time).ok()?;
        let (mut from, mut until) = (i64::MIN, i64::MAX);
        for certificate in chain {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            from = from.max(certificate.validity().not_before.timestamp());
            until = until.min(certificate.validity().not_after.timestamp());
        }
        Some(Known { user: Arc::new(user(leaf)?), from, until })
    }
}

fn user(leaf: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_string();
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_string).collect();
    groups.push("system:authenticated".to_string());
    Some(User { name, uid: String::new(), groups, extra: Map::new() })
}
