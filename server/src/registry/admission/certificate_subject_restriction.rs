//! The signer of API clients grants no one `system:masters`.

use api::Tree;
use api::status::Status;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Name};

use super::{Attributes, Operation};

/// A text that is not a base64-encoded certificate signing request in PEM.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Base64(#[from] api::base64::DecodeError),
    #[error(transparent)]
    Pem(#[from] x509_parser::nom::Err<x509_parser::error::PEMError>),
    #[error(transparent)]
    Der(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
}

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(super) fn validate(
    attributes: &Attributes<'_>,
    request: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(request) = request else { return Ok(()) };
    let csr = attributes.is("certificates.k8s.io", "CertificateSigningRequest", Operation::Create);
    if !csr || request.str("spec.signerName") != SIGNER {
        return Ok(());
    }
    let organizations = organizations(request.str("spec.request"))
        .map_err(|why| attributes.forbidden(format!("failed to parse CSR: {why}")))?;
    if organizations.iter().any(|group| group == "system:masters") {
        return Err(attributes.forbidden(format!("use of {SIGNER} signer with system:masters group is not allowed")));
    }
    Ok(())
}

/// The groups in the subject of a base64-encoded PEM request.
fn organizations(encoded: &str) -> Result<Vec<String>, RequestError> {
    subject(encoded, |subject| {
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_string).collect()
    })
}

/// The common name of a base64-encoded PEM request; "" where it has none. Of several the last counts, as in
/// authentication and in the signer.
pub(super) fn common_name(encoded: &str) -> Result<String, RequestError> {
    subject(encoded, |subject| {
        subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or("").to_string()
    })
}

fn subject<T>(encoded: &str, read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, RequestError> {
    let pem = api::base64::decode(encoded)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem)?;
    let (_, csr) = X509CertificationRequest::from_der(&pem.contents)?;
    Ok(read(&csr.certification_request_info.subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl req -new -subj '/O=system:masters/CN=x'`
    const REQUEST: &str = concat!(
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZk1JR0hBZ0VBTUNVeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRw",
        "dFlYTjBaWEp6TVFvd0NBWURWUVFEREFGNApNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVhaGQ4eUxDbVhGZExx",
        "bFljTVVYMEVTOVM0UmZGCmw3RHc0SGMvam9DeG14OUhhSytaL0QxNkxsam05ZS9URGZEVXBMZVR0YzQ4TDhxSC92emQ3RW1BaWFB",
        "QU1Bb0cKQ0NxR1NNNDlCQU1DQTBjQU1FUUNJRTZ0UWJZQ1QySjBKMS82VjkzVHNkMkYyNGVLNEF1azdhbm91dlFoUTdwOQpBaUJp",
        "UUdZK2pNdEgvUVpzVGhWZWpzOEFTaEp4empvRkxqT0ZBdmNJTnFtSGlnPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0t",
        "LS0tCg==",
    );

    /// `openssl req -new -subj '/CN=system:node:a/CN=system:node:b'`
    const TWO_NAMES: &str = concat!(
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIcU1JR1NBZ0VBTURBeEZqQVVCZ05WQkFNTURYTjVjM1JsYlRw",
        "dWIyUmxPbUV4RmpBVUJnTlZCQU1NRFhONQpjM1JsYlRwdWIyUmxPbUl3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNB",
        "QVFHNHYzTW1sWXh1b2lkCkdTQmxiZDRwWTZrbS9NZS9jUGEzdnFoNzhuQm9ZYi9DYkh1enVJUUV2ZDFDV3AycUxCTVBrZVlnakR4",
        "a2c4d2gKckJHR205S3VvQUF3Q2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnTVhoOXVwaTYvYnpCeFNTYVNickRSNWNYZk54ZApnTEo0",
        "d1YzcGV1R2kwQ0FDSURDK29HU0ordDU1VDA2M1B2TFRsUVVjNXhhL2Z0ZXdVNmIzOVVMMUl5Qm8KLS0tLS1FTkQgQ0VSVElGSUNB",
        "VEUgUkVRVUVTVC0tLS0tCg==",
    );

    #[test]
    fn the_last_common_name_counts() {
        assert_eq!(common_name(TWO_NAMES).ok().as_deref(), Some("system:node:b"));
    }

    #[test]
    fn the_groups_of_a_request_are_read() {
        assert_eq!(organizations(REQUEST).ok(), Some(vec!["system:masters".to_string()]));
        assert_eq!(common_name(REQUEST).ok().as_deref(), Some("x"));
        assert!(organizations("").is_err());
        assert!(organizations("AAAA").is_err());
    }
}
