//! The contents of a certificate.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::nom;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Subject;

/// Why a certificate cannot be described.
#[derive(Debug, Error)]
pub enum DescribeError {
    #[error(transparent)]
    Der(#[from] nom::Err<X509Error>),
    /// The certificate expired before 1970.
    #[error(transparent)]
    Expiration(#[from] std::num::TryFromIntError),
}

/// The contents of a certificate.
#[derive(Debug, Clone)]
pub struct Description {
    pub common_name: String,
    pub organization: String,
    pub issuer: String,
    pub names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub not_after: SystemTime,
    pub is_ca: bool,
    /// Key identifiers of the subject and of the issuer.
    own_key: Vec<u8>,
    signed_by: Vec<u8>,
}

/// Reads the contents of a certificate.
pub fn describe(certificate: &CertificateDer<'_>) -> Result<Description, DescribeError> {
    let (_, certificate) = X509Certificate::from_der(certificate)?;
    let subject = certificate.subject();
    let common = |name: &x509_parser::x509::X509Name<'_>| {
        name.iter_common_name().filter_map(|cn| cn.as_str().ok()).last().unwrap_or_default().to_string()
    };
    let organizations: Vec<&str> = subject.iter_organization().filter_map(|o| o.as_str().ok()).collect();
    let seconds = u64::try_from(certificate.validity().not_after.timestamp())?;
    let mut description = Description {
        common_name: common(subject),
        organization: organizations.join(","),
        issuer: common(certificate.issuer()),
        names: Vec::new(),
        addresses: Vec::new(),
        not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        is_ca: certificate.is_ca(),
        own_key: Vec::new(),
        signed_by: Vec::new(),
    };
    for extension in certificate.extensions() {
        description.read(extension.parsed_extension());
    }
    Ok(description)
}

impl Description {
    fn read(&mut self, extension: &ParsedExtension<'_>) {
        match extension {
            ParsedExtension::SubjectAlternativeName(names) => names.general_names.iter().for_each(|name| match name {
                GeneralName::DNSName(name) => self.names.push((*name).to_string()),
                GeneralName::IPAddress(bytes) => self.addresses.extend(address(bytes)),
                _ => {}
            }),
            ParsedExtension::SubjectKeyIdentifier(id) => self.own_key = id.0.to_vec(),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                self.signed_by = id.key_identifier.as_ref().map(|id| id.0.to_vec()).unwrap_or_default();
            }
            _ => {}
        }
    }

    /// Whether this CA issued the certificate for the subject.
    pub fn fits(&self, subject: &Subject, ca: &Description) -> bool {
        self.common_name == subject.common_name
            && self.organization == subject.organization
            && self.names == subject.names
            && self.addresses == subject.addresses
            && !self.signed_by.is_empty()
            && self.signed_by == ca.own_key
    }

    /// Names and addresses, for people.
    pub(crate) fn alternative_names(&self) -> String {
        let addresses = self.addresses.iter().map(ToString::to_string);
        self.names.iter().cloned().chain(addresses).collect::<Vec<_>>().join(",")
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
