//! CertificateSubjectRestriction: the signer for API clients issues no certificate for the group `system:masters`.

use api::Tree;
use api::status::Status;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
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
    Der(#[from] x509_parser::nom::Err<X509Error>),
    #[error("invalid subject: {0}")]
    Subject(#[from] X509Error),
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
    subject(encoded, |subject| subject.iter_organization().map(|name| Ok(name.as_str()?.to_string())).collect())
}

/// The common name of a base64-encoded PEM request; "" if it has none. The last of several is used, as in
/// authentication and in the signer.
pub(super) fn common_name(encoded: &str) -> Result<String, RequestError> {
    let names: Vec<String> =
        subject(encoded, |subject| subject.iter_common_name().map(|name| Ok(name.as_str()?.to_string())).collect())?;
    Ok(names.into_iter().next_back().unwrap_or_default())
}

/// A name that cannot be decoded is an error: other implementations may understand it, and it must not pass unchecked.
fn subject<T>(encoded: &str, read: impl FnOnce(&X509Name<'_>) -> Result<T, X509Error>) -> Result<T, RequestError> {
    let pem = api::base64::decode(encoded)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem)?;
    let (_, csr) = X509CertificationRequest::from_der(&pem.contents)?;
    Ok(read(&csr.certification_request_info.subject)?)
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

    /// The name as a BMPString, which other programs decode.
    const UNDECODABLE: &str = concat!(
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkJqQ0JyZ0lCQURCTU1TVXdJd1lEVlFRS0hod0Fjd0I1QUhN",
        "QWRBQmxBRzBBT2dCdEFHRUFjd0IwQUdVQQpjZ0J6TVNNd0lRWURWUVFESGhvQWN3QjVBSE1BZEFCbEFHMEFPZ0J1QUc4QVpBQmxB",
        "RG9BYmpCWk1CTUdCeXFHClNNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQUJCRlU2M3BBdDF1c2tRb1Z0UXJocGlTNHJ6eXFYUU01d0w4",
        "Ni9ZNCsKcWIzMzJWQ3VOMTRlbmZzV3F2dmhlK3JwUlNXSUplMk9iQVlFZWppODlWUlJhS0dnQURBS0JnZ3Foa2pPUFFRRApBZ05I",
        "QURCRUFpQU90Wk9NcWEvRTNUV1ljUEJpQWk1Q1VZSzNKSkx3QkVSakVFWjNjMEdtQmdJZ0hGbkxmVWJTCnFoNnArV1VIeXIwRSsr",
        "T2VyWHZnWU5tbUR1RHBMSkI0MmhnPQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K",
    );

    #[test]
    fn names_that_cannot_be_decoded_are_errors() {
        assert!(matches!(organizations(UNDECODABLE), Err(RequestError::Subject(_))));
        assert!(matches!(common_name(UNDECODABLE), Err(RequestError::Subject(_))));
    }
}
