//! Certificates of the cluster: issued at the first start, stored with safe permissions, and renewed before they
//! expire. A directory holds them under the names that kubeadm uses.

pub mod bundle;
pub mod cluster;
pub mod credentials;
mod describe;
mod issue;
pub mod kubeconfig;
pub mod subjects;

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use server::authentication::token::Tokens;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::{Error, Result};
use crate::machine::files::{write_durable, write_private};
pub use describe::{Description, describe};
use issue::Purpose;

/// A certificate and its key, in PEM, and the file of the certificate.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CertificateAndKey {
    pub certificate: String,
    pub key: String,
    pub path: PathBuf,
}

impl CertificateAndKey {
    /// Reads an existing pair.
    pub fn read(certificate: &Path, key: &Path) -> Result<CertificateAndKey> {
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::file(path));
        Ok(CertificateAndKey { certificate: read(certificate)?, key: read(key)?, path: certificate.to_path_buf() })
    }
}

/// The files of a self-signed pair in a directory, created if missing.
pub(crate) fn keep_self_signed(dir: &Path, name: &str, address: std::net::IpAddr) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    fs::create_dir_all(dir).map_err(Error::file(dir))?;
    let pair = self_signed(name, address)?;
    write_private(&key, &pair.key)?;
    write_durable(&certificate, &pair.certificate)?;
    Ok((certificate, key))
}

/// A self-signed certificate for a port without a configured one; clients cannot verify it.
pub fn self_signed(name: &str, address: std::net::IpAddr) -> Result<CertificateAndKey> {
    let now = SystemTime::now();
    let validity = (now - Duration::from_secs(3600), now + Duration::from_secs(365 * 86_400));
    let (certificate, key) = issue::create_ca(&format!("{name}-ca@{address}"), validity)?;
    let ca = CertificateAndKey { certificate, key, path: PathBuf::new() };
    let subject = Subject {
        file: String::new(),
        ca: "",
        common_name: format!("{name}@{address}"),
        organization: String::new(),
        names: vec!["localhost".to_string()],
        addresses: vec![address, std::net::IpAddr::from([127, 0, 0, 1])],
    };
    let (certificate, key) = issue::leaf(&ca, &subject, Purpose::Server, validity)?;
    Ok(CertificateAndKey { certificate, key, path: PathBuf::new() })
}

/// The certificates of a pair, the leaf first.
pub fn certificates(pair: &CertificateAndKey) -> Result<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
    all.map_err(|error| Error::Pem { path: pair.path.clone(), source: Box::new(error) })
}

/// The key of a pair.
pub fn private_key(pair: &CertificateAndKey) -> Result<PrivateKeyDer<'static>> {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
    key.map_err(|error| Error::Pem { path: pair.path.with_extension("key"), source: Box::new(error) })
}

/// Signs with one key, and accepts tokens that any of the public keys verifies.
pub fn tokens(signing_key: &Path, public_keys: &[PathBuf]) -> Result<Tokens> {
    let bad = |path: &Path, source| Error::Pem { path: path.to_path_buf(), source };
    let key = fs::read(signing_key).map_err(Error::file(signing_key))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad(signing_key, Box::new(error)))?;
    let mut tokens = Tokens::new(&key).map_err(|error| bad(signing_key, error.into()))?;
    for path in public_keys {
        let pem = fs::read(path).map_err(Error::file(path))?;
        let keys = verification_keys(&pem).map_err(|error| bad(path, Box::new(error)))?;
        if keys.is_empty() {
            return Err(bad(path, "it contains no private key".into()));
        }
        for key in keys {
            tokens.trust(key).map_err(|error| bad(path, error.into()))?;
        }
    }
    Ok(tokens)
}

/// Public keys, and the public parts of private ones and of certificates.
fn verification_keys(pem: &[u8]) -> std::result::Result<Vec<Vec<u8>>, rustls::pki_types::pem::Error> {
    let mut keys = Vec::new();
    for key in SubjectPublicKeyInfoDer::pem_slice_iter(pem) {
        keys.push(key?.to_vec());
    }
    for key in PrivateKeyDer::pem_slice_iter(pem) {
        keys.extend(Tokens::public_der(&key?));
    }
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate?;
        let parsed = X509Certificate::from_der(&certificate).ok();
        keys.extend(parsed.map(|(_, parsed)| parsed.public_key().raw.to_vec()));
    }
    Ok(keys)
}

/// Validity of certificates. They are renewed when a third of it is left.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    pub ca: Duration,
    pub leaf: Duration,
}

const YEAR: Duration = Duration::from_secs(365 * 86_400);

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes { ca: YEAR * 10, leaf: YEAR }
    }
}

/// The current time.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The directory `pki` of a data directory.
#[derive(Clone)]
pub struct Pki {
    dir: PathBuf,
    pub lifetimes: Lifetimes,
    clock: Clock,
}

/// The subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The files are NAME.crt and NAME.key.
    pub file: String,
    /// The CA that signs it, by the name of its files.
    pub ca: &'static str,
    pub common_name: String,
    pub organization: String,
    /// A certificate without names and addresses is for a client.
    pub names: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

impl Pki {
    /// Opens a directory of certificates.
    pub fn open(dir: PathBuf) -> Result<Pki> {
        Pki::with_clock(dir, Lifetimes::default(), Arc::new(SystemTime::now))
    }

    /// Opens a directory with other lifetimes and another clock.
    pub fn with_clock(dir: PathBuf, lifetimes: Lifetimes, clock: Clock) -> Result<Pki> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Error::file(&dir))?;
        Ok(Pki { dir, lifetimes, clock })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The current time.
    pub fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Reads a certificate and its key; None if they do not exist.
    pub fn read(&self, file: &str) -> Result<Option<CertificateAndKey>> {
        let (certificate, key) = (self.path(file, "crt"), self.path(file, "key"));
        let missing = |path: &Path| matches!(path.try_exists(), Ok(false));
        if missing(&certificate) && missing(&key) {
            Ok(None)
        } else {
            CertificateAndKey::read(&certificate, &key).map(Some)
        }
    }

    fn path(&self, file: &str, end: &str) -> PathBuf {
        self.dir.join(format!("{file}.{end}"))
    }

    /// The CA of a name, created if missing. Before it expires it gets a new certificate for the same key, so that
    /// everything it has signed stays valid.
    pub fn ensure_ca(&self, file: &str, common_name: &str) -> Result<CertificateAndKey> {
        let Some(pair) = self.read(file)? else { return self.new_ca(file, common_name, "") };
        let description = described(&pair)?;
        if self.renewal(&description) > self.now() {
            return Ok(pair);
        }
        let certificate = issue::renewed_ca(&pair, common_name, self.validity(self.lifetimes.ca))?;
        self.keep_ca(file, CertificateAndKey { certificate: certificate + others(&pair.certificate), ..pair })
    }

    /// Creates another key. Certificates of the old key stay valid until its certificate is removed from the file.
    pub(crate) fn new_ca(&self, file: &str, common_name: &str, old: &str) -> Result<CertificateAndKey> {
        let (certificate, key) = issue::create_ca(common_name, self.validity(self.lifetimes.ca))?;
        let pair = CertificateAndKey { certificate: certificate + old, key, path: self.path(file, "crt") };
        self.keep_ca(file, pair)
    }

    /// Writes the certificate last: it completes the pair. A CA cannot be recreated, so the write waits for the disk.
    fn keep_ca(&self, file: &str, pair: CertificateAndKey) -> Result<CertificateAndKey> {
        write_durable(&self.path(file, "key"), &pair.key)?;
        write_durable(&self.path(file, "crt"), &pair.certificate)?;
        Ok(pair)
    }

    /// The key of service account tokens, created if missing.
    pub fn tokens(&self) -> Result<Tokens> {
        tokens(&self.ensure_signing_key()?, &[])
    }

    /// The same key, in PEM.
    pub fn signing_key(&self) -> Result<String> {
        let path = self.ensure_signing_key()?;
        std::fs::read_to_string(&path).map_err(Error::file(&path))
    }

    fn ensure_signing_key(&self) -> Result<PathBuf> {
        let path = self.path("sa", "key");
        if matches!(path.try_exists(), Ok(false)) {
            let (key, public) = issue::key()?;
            write_private(&self.path("sa", "pub"), &public)?;
            write_durable(&path, &key)?;
        }
        Ok(path)
    }

    /// A certificate signed by the CA. It is issued again if it is missing, unreadable, for another subject, of another
    /// CA, or about to expire.
    pub fn leaf(&self, ca: &CertificateAndKey, subject: &Subject) -> Result<CertificateAndKey> {
        self.ensure(ca, subject, Purpose::of(subject))
    }

    /// The same for a server that uses its certificate as a client too, as members of etcd do.
    pub(crate) fn peer(&self, ca: &CertificateAndKey, subject: &Subject) -> Result<CertificateAndKey> {
        self.ensure(ca, subject, Purpose::Peer)
    }

    fn ensure(&self, ca: &CertificateAndKey, subject: &Subject, purpose: Purpose) -> Result<CertificateAndKey> {
        if let Ok(Some(pair)) = self.read(&subject.file)
            && let Ok(description) = described(&pair)
            && description.fits(subject, &described(ca)?)
            && self.renewal(&description) > self.now()
        {
            return Ok(pair);
        }
        self.issue_for(ca, subject, purpose)
    }

    /// Issues the certificate again, whether or not it exists.
    pub fn issue(&self, ca: &CertificateAndKey, subject: &Subject) -> Result<CertificateAndKey> {
        self.issue_for(ca, subject, Purpose::of(subject))
    }

    fn issue_for(&self, ca: &CertificateAndKey, subject: &Subject, purpose: Purpose) -> Result<CertificateAndKey> {
        let (certificate, key) = issue::leaf(ca, subject, purpose, self.validity(self.lifetimes.leaf))?;
        write_private(&self.path(&subject.file, "key"), &key)?;
        write_private(&self.path(&subject.file, "crt"), &certificate)?;
        Ok(CertificateAndKey { certificate, key, path: self.path(&subject.file, "crt") })
    }

    /// An hour back, for clocks that differ.
    fn validity(&self, lifetime: Duration) -> (SystemTime, SystemTime) {
        (self.now() - Duration::from_secs(3600), self.now() + lifetime)
    }

    /// The same of a certificate by the name of its files; None where there is none.
    pub(crate) fn renewal_of(&self, file: &str) -> Option<SystemTime> {
        let pair = self.read(file).ok().flatten()?;
        Some(self.renewal(&described(&pair).ok()?))
    }

    /// When a certificate is due for renewal.
    pub(crate) fn renewal(&self, description: &Description) -> SystemTime {
        let lifetime = if description.is_ca { self.lifetimes.ca } else { self.lifetimes.leaf };
        description.not_after - lifetime / 3
    }
}

/// Describes the first certificate of a pair.
pub fn described(pair: &CertificateAndKey) -> Result<Description> {
    let bad = |source| Error::Pem { path: pair.path.clone(), source };
    let first = certificates(pair)?.into_iter().next().ok_or_else(|| bad("there is no certificate".into()))?;
    describe(&first).map_err(|error| bad(error.into()))
}

/// The certificates of a bundle behind its first.
fn others(bundle: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    bundle.find(END).map_or("", |at| &bundle[at + END.len()..])
}

#[cfg(test)]
mod tests;
