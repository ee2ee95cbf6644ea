//! Creates keys and certificates.

use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::{CertificateAndKey, Subject};
use crate::error::Result;

type Validity = (SystemTime, SystemTime);

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Client,
    Server,
    /// A server that is a client of its peers.
    Peer,
}

impl Purpose {
    /// A certificate without names and addresses is for a client.
    pub(super) fn of(subject: &Subject) -> Purpose {
        match subject.names.is_empty() && subject.addresses.is_empty() {
            true => Purpose::Client,
            false => Purpose::Server,
        }
    }

    fn usages(self) -> Vec<ExtendedKeyUsagePurpose> {
        let (client, server) = (ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth);
        match self {
            Purpose::Client => vec![client],
            Purpose::Server => vec![server],
            Purpose::Peer => vec![server, client],
        }
    }
}

/// A private key and its public one, in PEM.
pub(super) fn key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Creates a CA certificate and its key.
pub(super) fn create_ca(common_name: &str, validity: Validity) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let certificate = ca_params(common_name, validity)?.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// A new certificate for the key of a CA.
pub(crate) fn renewed_ca(pair: &CertificateAndKey, common_name: &str, validity: Validity) -> Result<String> {
    let key = KeyPair::from_pem(&pair.key)?;
    Ok(ca_params(common_name, validity)?.self_signed(&key)?.pem())
}

fn ca_params(common_name: &str, validity: Validity) -> Result<CertificateParams> {
    let mut params = params(common_name, "", validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

/// A certificate with a new key.
pub(super) fn leaf(
    ca: &CertificateAndKey,
    subject: &Subject,
    purpose: Purpose,
    validity: Validity,
) -> Result<(String, String)> {
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    let key = KeyPair::generate()?;
    let mut params = params(&subject.common_name, &subject.organization, validity)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = purpose.usages();
    for name in &subject.names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    params.subject_alt_names.extend(subject.addresses.iter().map(|address| SanType::IpAddress(*address)));
    Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

fn params(common_name: &str, organization: &str, (from, until): Validity) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.not_before = from.into();
    params.not_after = until.into();
    Ok(params)
}
