//! Client certificates. The handshake accepts any chain; each request verifies it here. An expired or foreign
//! certificate thus gets a response and not a broken connection, and a change of the CA bundle applies to open
//! connections.

use std::sync::Arc;
use std::time::Duration;

use api::{Map, Tree};
use arc_swap::{ArcSwap, ArcSwapOption};
use aws_lc_rs::digest;
use kinds::User;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::common::users::with_authenticated_group;

/// The attribute of a subject that holds the user's uid.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// How long an invalid chain is not verified again: verifying signatures is expensive.
const REFUSED_SECONDS: i64 = 5;

/// A CA bundle that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error(transparent)]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
    #[error("no certificate found")]
    Empty,
    #[error(transparent)]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Why the chain of a client is not accepted. Cached with the verification.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CertificateError {
    #[error("no certificate")]
    Missing,
    #[error(transparent)]
    Clock(#[from] std::num::TryFromIntError),
    #[error(transparent)]
    Chain(#[from] rustls::Error),
    #[error(transparent)]
    Der(#[from] DerError),
    #[error("the name is not valid text")]
    Name,
}

type DerError = x509_parser::nom::Err<x509_parser::error::X509Error>;

/// The CA bundle of client certificates; it can be replaced while running.
pub struct CaBundle {
    current: ArcSwap<Bundle>,
    changes: watch::Sender<u64>,
}

struct Bundle {
    generation: u64,
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl CaBundle {
    /// Reads a PEM bundle; a bundle without a certificate is an error.
    pub fn new(pem: &str) -> Result<CaBundle, BundleError> {
        Ok(CaBundle { current: ArcSwap::from_pointee(Bundle::read(pem, 0)?), changes: watch::Sender::new(0) })
    }

    /// Replaces the bundle. An unreadable bundle changes nothing.
    pub fn replace(&self, pem: &str) -> Result<(), BundleError> {
        let current = self.current.load();
        if current.pem == pem {
            return Ok(());
        }
        let generation = current.generation + 1;
        self.current.store(Arc::new(Bundle::read(pem, generation)?));
        self.changes.send_replace(generation);
        Ok(())
    }

    /// The names of the CAs, for clients that choose among certificates.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        self.current.load().verifier.root_hint_subjects().to_vec()
    }

    /// A number that changes with each replacement.
    pub fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// The bundle in use.
    pub fn pem(&self) -> String {
        self.current.load().pem.clone()
    }

    /// Hears of each replacement.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The user of a chain that is currently valid.
    pub fn owner(&self, chain: &ClientChain, now: i64) -> Result<Arc<User>, CertificateError> {
        self.identify(chain, &chain.as_user, now)
    }

    /// The owner of a chain that is valid now; `known` caches the result.
    pub(crate) fn identify(
        &self,
        chain: &ClientChain,
        known: &VerificationCache,
        now: i64,
    ) -> Result<Arc<User>, CertificateError> {
        let bundle = self.current.load();
        if let Some(judged) = known.0.load().as_ref()
            && judged.generation == bundle.generation
            && (judged.from..=judged.until).contains(&now)
        {
            return judged.owner.clone();
        }
        let judged = bundle.verify_chain(&chain.certificates, now);
        let owner = judged.owner.clone();
        known.0.store(Some(Arc::new(judged)));
        owner
    }
}

impl Bundle {
    fn read(pem: &str, generation: u64) -> Result<Bundle, BundleError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate?)?;
        }
        if roots.is_empty() {
            return Err(BundleError::Empty);
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider()).build()?;
        Ok(Bundle { generation, pem: pem.to_string(), verifier })
    }

    fn verify_chain(&self, chain: &[CertificateDer<'static>], now: i64) -> Verification {
        let generation = self.generation;
        match self.verify(chain, now) {
            Ok((user, from, until)) => {
                Verification { generation, from, until, owner: Ok(with_authenticated_group(user)) }
            }
            Err(why) => Verification { generation, from: now, until: now + REFUSED_SECONDS, owner: Err(why) },
        }
    }

    /// The user, and the seconds between which every certificate of the chain is valid.
    fn verify(&self, chain: &[CertificateDer<'static>], now: i64) -> Result<(User, i64, i64), CertificateError> {
        let (leaf, intermediates) = chain.split_first().ok_or(CertificateError::Missing)?;
        let seconds = u64::try_from(now)?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.verifier.verify_client_cert(leaf, intermediates, time)?;
        let (mut from, mut until) = (i64::MIN, i64::MAX);
        for certificate in chain {
            let (_, certificate) = X509Certificate::from_der(certificate)?;
            from = from.max(certificate.validity().not_before.timestamp());
            until = until.min(certificate.validity().not_after.timestamp());
        }
        Ok((user(leaf)?, from, until))
    }
}

/// The certificates that the client of a connection has presented, and the result of their verification.
#[derive(Debug, Default)]
pub struct ClientChain {
    certificates: Vec<CertificateDer<'static>>,
    pub(crate) as_user: VerificationCache,
    pub(crate) as_proxy: VerificationCache,
}

impl ClientChain {
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> ClientChain {
        ClientChain { certificates, ..ClientChain::default() }
    }

    /// Whether the client presented no certificate.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }
}

/// The last verification of a chain: valid for one CA bundle and for a time.
#[derive(Debug, Default)]
pub(crate) struct VerificationCache(ArcSwapOption<Verification>);

#[derive(Debug)]
struct Verification {
    generation: u64,
    from: i64,
    until: i64,
    owner: Result<Arc<User>, CertificateError>,
}

/// CN is the name and O are the groups. Of several CNs the last counts, as upstream has it.
fn user(leaf: &CertificateDer<'_>) -> Result<User, CertificateError> {
    let (_, certificate) = X509Certificate::from_der(leaf)?;
    let subject = certificate.subject();
    let text = |value: Result<&str, _>| value.map(str::to_string).map_err(|_| CertificateError::Name);
    let names: Vec<String> = subject.iter_common_name().map(|cn| text(cn.as_str())).collect::<Result<_, _>>()?;
    let groups = subject.iter_organization().map(|o| text(o.as_str())).collect::<Result<_, _>>()?;
    let uid = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == UID).last();
    let uid = uid.map(|uid| text(uid.as_str())).transpose()?.unwrap_or_default();
    let hash = digest::digest(&digest::SHA256, leaf);
    let id = stdx::hex::encode(hash.as_ref());
    let mut extra = Map::new();
    let id = Tree::List(vec![Tree::from(format!("X509SHA256={id}"))]);
    extra.insert("authentication.kubernetes.io/credential-id", id);
    Ok(User { name: names.into_iter().next_back().unwrap_or_default(), uid, groups, extra })
}
