//! Parses certificate requests and signs certificates. Subject, public key and subject alternative names of the
//! request are copied byte for byte; nothing else of it is.

use std::net::IpAddr;

use thiserror::Error;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::error::{PEMError, X509Error};
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::nom;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, X509Certificate};

use super::der;
use super::plan::Subject;
use crate::support::keys::{Key, KeyError, SignatureEncoding};

const NAMES: [u64; 4] = [2, 5, 29, 17];
const SHA256_ECDSA: [u64; 7] = [1, 2, 840, 10045, 4, 3, 2];
const SHA384_ECDSA: [u64; 7] = [1, 2, 840, 10045, 4, 3, 3];
const SHA256_RSA: [u64; 7] = [1, 2, 840, 113549, 1, 1, 11];
/// Certificates start slightly in the past to tolerate clock skew.
const BACKDATE_SECONDS: i64 = 300;
/// Certificates shorter than this are not shortened by the backdating.
const SHORT_SECONDS: i64 = 8 * 3600;

/// Key usage bits, and extended key usages by OID.
static USAGES: [(&str, u8); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];
static PURPOSES: [(&str, &[u64]); 13] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113730, 4, 1]),
];

/// Why a request or a CA cannot be read, or a certificate not be signed.
#[derive(Debug, Error)]
pub(super) enum Error {
    #[error("{0}")]
    Base64(String),
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    #[error(transparent)]
    Pem(#[from] nom::Err<PEMError>),
    #[error(transparent)]
    Der(#[from] nom::Err<X509Error>),
    #[error(transparent)]
    Signature(#[from] X509Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Random(#[from] aws_lc_rs::error::Unspecified),
    #[error("unrecognized usage values: [{0}]")]
    Usages(String),
}

/// The parts of a request that go into the certificate.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub subject: Subject,
    /// The DNS and IP subject alternative names as text.
    pub hosts: Vec<String>,
    name: Vec<u8>,
    key: Vec<u8>,
    names: Option<Vec<u8>>,
}

impl Request {
    /// Parses `spec.request`: PEM in base64.
    pub(super) fn decode(encoded: &str) -> Result<Request, Error> {
        Request::read(&api::base64::decode(encoded).map_err(|error| Error::Base64(error.to_string()))?)
    }

    /// Parses a PEM request and verifies its self-signature.
    fn read(pem: &[u8]) -> Result<Request, Error> {
        let (_, pem) = parse_x509_pem(pem).map_err(|_| Error::NotARequest)?;
        let (_, csr) = X509CertificationRequest::from_der(&pem.contents)?;
        csr.verify_signature()?;
        let info = &csr.certification_request_info;
        // Other implementations may understand a name that cannot be decoded here: it would be signed without a check.
        let text = |name: &AttributeTypeAndValue<'_>| Ok::<_, X509Error>(name.as_str()?.to_string());
        let common_names = info.subject.iter_common_name().map(text).collect::<Result<Vec<_>, _>>()?;
        let organizations = info.subject.iter_organization().map(text).collect::<Result<Vec<_>, _>>()?;
        let common_name = common_names.into_iter().next_back().unwrap_or_default();
        let subject = Subject { common_name, organizations, ..Subject::default() };
        let mut request = Request {
            subject,
            name: info.subject.as_raw().to_vec(),
            key: info.subject_pki.raw.to_vec(),
            names: None,
            hosts: Vec::new(),
        };
        for attribute in info.attributes() {
            if let ParsedCriAttribute::ExtensionRequest(wanted) = attribute.parsed_attribute() {
                wanted.extensions.iter().for_each(|extension| request.take(extension));
            }
        }
        Ok(request)
    }

    fn take(&mut self, extension: &X509Extension<'_>) {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else { return };
        self.names = Some(extension.value.to_vec());
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => {
                    self.subject.dns_names += 1;
                    self.hosts.push((*name).to_string());
                }
                GeneralName::IPAddress(bytes) => {
                    self.subject.addresses += 1;
                    self.hosts.push(address_text(bytes));
                }
                GeneralName::RFC822Name(_) => self.subject.emails += 1,
                GeneralName::URI(_) => self.subject.uris += 1,
                _ => {}
            }
        }
    }
}

/// Empty for bytes that are not an IP address.
fn address_text(bytes: &[u8]) -> String {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.map(|address| address.to_string()).unwrap_or_default()
}

/// A CA that signs certificates.
pub(super) struct Ca {
    key: Key,
    name: Vec<u8>,
    /// The subject key identifier, which becomes the authority key identifier of certificates.
    key_id: Option<Vec<u8>>,
    ends: i64,
}

impl Ca {
    pub(super) fn read(certificate: &str, key: &str) -> Result<Ca, Error> {
        let (_, pem) = parse_x509_pem(certificate.as_bytes())?;
        let certificate = pem.parse_x509()?;
        let key_id = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        Ok(Ca {
            key: Key::read(key, SignatureEncoding::Der)?,
            name: certificate.subject().as_raw().to_vec(),
            key_id,
            ends: certificate.validity().not_after.timestamp(),
        })
    }

    /// Signs a certificate that is valid for `seconds` from about now, in PEM.
    pub(super) fn sign(&self, request: &Request, usages: &[&str], now: i64, seconds: i64) -> Result<String, Error> {
        let ends = if seconds < SHORT_SECONDS { now + seconds } else { now + seconds - BACKDATE_SECONDS };
        let validity = der::sequence(&[&der::time(now - BACKDATE_SECONDS), &der::time(ends.min(self.ends))]);
        let mut serial = [0; 16];
        aws_lc_rs::rand::fill(&mut serial)?;
        serial[0] &= 0x7f;
        let algorithm = self.algorithm();
        let content = der::sequence(&[
            &der::value(0xa0, &der::unsigned(&[2])),
            &der::unsigned(&serial),
            &algorithm,
            &self.name,
            &validity,
            &request.name,
            &request.key,
            &der::value(0xa3, &self.extensions(request, usages)?),
        ]);
        let signature = der::bit_string(&self.key.sign(&content)?);
        Ok(pem(&der::sequence(&[&content, &algorithm, &signature])))
    }

    fn algorithm(&self) -> Vec<u8> {
        match self.key {
            Key::P256(_) => der::sequence(&[&der::oid(&SHA256_ECDSA)]),
            Key::P384(_) => der::sequence(&[&der::oid(&SHA384_ECDSA)]),
            Key::Rsa(_) => der::sequence(&[&der::oid(&SHA256_RSA), &der::NULL]),
        }
    }

    fn extensions(&self, request: &Request, usages: &[&str]) -> Result<Vec<u8>, Error> {
        let (bits, purposes) = split(usages)?;
        let mut all = Vec::new();
        if !bits.is_empty() {
            all.push(extension(&[2, 5, 29, 15], true, &der::bits(&bits)));
        }
        if !purposes.is_empty() {
            all.push(extension(&[2, 5, 29, 37], false, &der::value(der::SEQUENCE, &purposes.concat())));
        }
        all.push(extension(&[2, 5, 29, 19], true, &der::sequence(&[])));
        if let Some(id) = &self.key_id {
            all.push(extension(&[2, 5, 29, 35], false, &der::sequence(&[&der::value(0x80, id)])));
        }
        if let Some(names) = &request.names {
            let is_nameless = request.name == der::sequence(&[]);
            all.push(extension(&NAMES, is_nameless, names));
        }
        Ok(der::value(der::SEQUENCE, &all.concat()))
    }
}

fn extension(id: &[u64], critical: bool, content: &[u8]) -> Vec<u8> {
    let flag: &[u8] = if critical { &der::TRUE } else { &[] };
    der::sequence(&[&der::oid(id), flag, &der::value(der::OCTETS, content)])
}

/// Key usage bits and extended key usages, deduplicated and in numeric order.
fn split(usages: &[&str]) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
    let is_known = |usage: &&&str| {
        USAGES.iter().any(|(name, _)| name == *usage) || PURPOSES.iter().any(|(name, _)| name == *usage)
    };
    let unknown: Vec<String> =
        usages.iter().filter(|usage| !is_known(usage)).map(|usage| format!("{usage:?}")).collect();
    if !unknown.is_empty() {
        return Err(Error::Usages(unknown.join(" ")));
    }
    let bits = USAGES.iter().filter(|(name, _)| usages.contains(name)).map(|(_, bit)| *bit).collect();
    let mut purposes: Vec<Vec<u8>> =
        PURPOSES.iter().filter(|(name, _)| usages.contains(name)).map(|(_, id)| der::oid(id)).collect();
    purposes.dedup();
    Ok((bits, purposes))
}

fn pem(bytes: &[u8]) -> String {
    let text = api::base64::encode(bytes);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The expiration of a PEM certificate.
pub(super) fn end_of(certificate: &[u8]) -> Option<i64> {
    let (_, pem) = parse_x509_pem(certificate).ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = include_str!("testdata/ca.crt");
    const CA_KEY: &str = include_str!("testdata/ca.key");
    /// A request with two organizations, a DNS name and an IP address.
    const REQUEST: &str = include_str!("testdata/node.csr");

    #[test]
    fn certificate_contains_the_requested_names() {
        let request = Request::read(REQUEST.as_bytes()).expect("a request");
        assert_eq!(request.subject.common_name, "system:node:a");
        assert_eq!(request.subject.organizations, ["system:nodes", "others"]);
        assert_eq!((request.subject.dns_names, request.subject.addresses), (1, 1));
        let ca = Ca::read(CA, CA_KEY).expect("a CA");
        let now = 1_790_000_000;
        let pem = ca.sign(&request, &["digital signature", "server auth"], now, 86_400).expect("a certificate");
        assert_eq!(end_of(pem.as_bytes()), Some(now + 86_400 - 300));
        let (_, block) = parse_x509_pem(pem.as_bytes()).expect("PEM");
        let certificate = block.parse_x509().expect("a certificate");
        let (_, ca_block) = parse_x509_pem(CA.as_bytes()).expect("PEM");
        let ca_certificate = ca_block.parse_x509().expect("a certificate");
        certificate.verify_signature(Some(ca_certificate.public_key())).expect("it is signed");
        assert_eq!(certificate.issuer(), ca_certificate.subject());
        assert_eq!(certificate.subject().to_string(), "O=system:nodes, O=others, CN=system:node:a");
        assert_eq!(certificate.validity().not_before.timestamp(), now - 300);
        let usage = certificate.key_usage().expect("usages").expect("usages").value;
        assert!(usage.digital_signature() && !usage.key_encipherment());
        let purposes = certificate.extended_key_usage().expect("purposes").expect("purposes").value;
        assert!(purposes.server_auth && !purposes.client_auth);
        assert!(!certificate.is_ca());
        let names = certificate.subject_alternative_name().expect("names").expect("names").value;
        assert_eq!(names.general_names.len(), 2);
        let short = ca.sign(&request, &["client auth"], now, 600).expect("a certificate");
        assert_eq!(end_of(short.as_bytes()), Some(now + 600), "a short one keeps its time");
        let long = ca.sign(&request, &["client auth"], now, 400 * 365 * 86_400).expect("a certificate");
        assert_eq!(
            end_of(long.as_bytes()),
            Some(ca_certificate.validity().not_after.timestamp()),
            "none outlives its CA"
        );
        let refused = ca.sign(&request, &["x"], now, 600).expect_err("an unknown usage");
        assert_eq!(refused.to_string(), "unrecognized usage values: [\"x\"]");
    }

    /// `O=system:masters` as a BMPString, which other programs decode.
    #[test]
    fn refuses_names_that_cannot_be_decoded() {
        let refused = Request::read(include_bytes!("testdata/undecodable.csr"));
        assert!(matches!(refused, Err(Error::Signature(_))), "a subject that is not judged would be signed");
    }

    #[test]
    fn refuses_invalid_requests() {
        assert!(Request::read(b"").is_err());
        assert!(Request::read(CA.as_bytes()).is_err());
        let mut forged = REQUEST.replace("-----BEGIN", "\n-----BEGIN").into_bytes();
        let middle = forged.len() / 2;
        forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
        assert!(Request::read(&forged).is_err(), "its signature is wrong");
    }
}
