//! Certificates of the cluster: made at the first start, kept with safe permissions, read again later.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use server::auth::token::Tokens;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::error::{Error, Result};

/// A certificate and its key, in PEM, and where the certificate came from.
#[derive(Clone, Default)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
    pub path: PathBuf,
}

impl Pair {
    /// A pair that others made.
    pub fn read(certificate: &Path, key: &Path) -> Result<Pair> {
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::file(path));
        Ok(Pair { certificate: read(certificate)?, key: read(key)?, path: certificate.to_path_buf() })
    }
}

/// The certificates of a pair, the leaf first.
pub fn certificates(pair: &Pair) -> Result<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
    all.map_err(|error| Error::Pem { path: pair.path.clone(), source: Box::new(error) })
}

pub fn private_key(pair: &Pair) -> Result<PrivateKeyDer<'static>> {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
    key.map_err(|error| Error::Pem { path: pair.path.with_extension("key"), source: Box::new(error) })
}

/// Signs with one key, and takes what any of the public keys has signed too.
pub fn tokens(signing_key: &Path, public_keys: &[PathBuf]) -> Result<Tokens> {
    let bad = |path: &Path, source| Error::Pem { path: path.to_path_buf(), source };
    let key = fs::read(signing_key).map_err(Error::file(signing_key))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad(signing_key, Box::new(error)))?;
    let mut tokens = Tokens::new(&key).map_err(|error| bad(signing_key, error.into()))?;
    for path in public_keys {
        let pem = fs::read(path).map_err(Error::file(path))?;
        for key in SubjectPublicKeyInfoDer::pem_slice_iter(&pem) {
            tokens.trust(key.map_err(|error| bad(path, Box::new(error)))?.to_vec());
        }
    }
    Ok(tokens)
}

/// The authorities of a bundle.
pub fn authorities(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.map_err(|error| Error::Pem { path: PathBuf::from("the client CA"), source: Box::new(error) })
}

/// The folder `pki` of a data directory, with the names that kubeadm uses.
pub struct Pki {
    dir: PathBuf,
}

/// Who a certificate is for.
pub struct Subject<'a> {
    /// The files are NAME.crt and NAME.key.
    pub file: &'a str,
    pub common_name: &'a str,
    pub organization: &'a str,
    /// Empty for a client.
    pub names: &'a [String],
    pub addresses: &'a [IpAddr],
}

impl Pki {
    pub fn open(dir: PathBuf) -> Result<Pki> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Error::file(&dir))?;
        Ok(Pki { dir })
    }

    fn read(&self, file: &str) -> Result<Option<Pair>> {
        let (certificate, key) = (self.path(file, "crt"), self.path(file, "key"));
        let missing = |path: &Path| matches!(path.try_exists(), Ok(false));
        if missing(&certificate) && missing(&key) { Ok(None) } else { Pair::read(&certificate, &key).map(Some) }
    }

    fn path(&self, file: &str, end: &str) -> PathBuf {
        self.dir.join(format!("{file}.{end}"))
    }

    /// The certificate last: with it the pair is there.
    fn write(&self, file: &str, pair: &Pair) -> Result<()> {
        write_durable(&self.path(file, "key"), &pair.key)?;
        write_durable(&self.path(file, "crt"), &pair.certificate)
    }

    /// The authority of a name, made where it is missing.
    pub fn authority(&self, file: &str, common_name: &str) -> Result<Pair> {
        if let Some(pair) = self.read(file)? {
            return Ok(pair);
        }
        let key = KeyPair::generate()?;
        let mut params = params(common_name, "")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        let path = self.path(file, "crt");
        let pair = Pair { certificate: certificate.pem(), key: key.serialize_pem(), path };
        self.write(file, &pair)?;
        Ok(pair)
    }

    /// The key of service account tokens, made where it is missing.
    pub fn tokens(&self) -> Result<Tokens> {
        let path = self.path("sa", "key");
        if matches!(path.try_exists(), Ok(false)) {
            let key = KeyPair::generate()?;
            write_private(&self.path("sa", "pub"), &key.public_key_pem())?;
            write_durable(&path, &key.serialize_pem())?;
        }
        tokens(&path, &[])
    }

    /// A certificate signed by the authority, made where it is missing or where its names have changed.
    pub fn issue(&self, authority: &Pair, subject: &Subject<'_>) -> Result<Pair> {
        let stamp = stamp(subject);
        let stamp_path = self.dir.join(format!("{}.names", subject.file));
        if let Some(pair) = self.read(subject.file)?
            && fs::read_to_string(&stamp_path).is_ok_and(|old| old == stamp)
        {
            return Ok(pair);
        }
        let pair = sign(authority, subject, self.path(subject.file, "crt"))?;
        self.write(subject.file, &pair)?;
        write_private(&stamp_path, &stamp)?;
        Ok(pair)
    }
}

/// What a certificate was made for, to see when that changes.
fn stamp(subject: &Subject<'_>) -> String {
    format!("{}\n{}\n{:?}\n{:?}\n", subject.common_name, subject.organization, subject.names, subject.addresses)
}

fn params(common_name: &str, organization: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    let now = std::time::SystemTime::now();
    // An hour back, for clocks that differ; ten years on: renewal while running comes with the gate.
    params.not_before = (now - std::time::Duration::from_secs(3600)).into();
    params.not_after = (now + std::time::Duration::from_secs(3650 * 86_400)).into();
    Ok(params)
}

fn sign(authority: &Pair, subject: &Subject<'_>, path: PathBuf) -> Result<Pair> {
    let authority_key = KeyPair::from_pem(&authority.key)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, authority_key)?;
    let key = KeyPair::generate()?;
    let mut params = params(subject.common_name, subject.organization)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    let server = !(subject.names.is_empty() && subject.addresses.is_empty());
    params.extended_key_usages =
        vec![if server { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth }];
    for name in subject.names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    params.subject_alt_names.extend(subject.addresses.iter().map(|address| SanType::IpAddress(*address)));
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), path })
}

/// Writes a file that only its owner can read, whole or not at all, also after a loss of power.
fn write_durable(path: &Path, text: &str) -> Result<()> {
    replace(path, text, true).map_err(Error::file(path))
}

/// The same for a file that is made again if it is lost: it does not wait for the disk.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    replace(path, text, false).map_err(Error::file(path))
}

fn replace(path: &Path, text: &str, sync: bool) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    if sync {
        file.sync_data()?;
    }
    fs::rename(&temporary, path)
}
