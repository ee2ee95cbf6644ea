//! Who approves or denies a certificate request must be allowed to, for its signer.

use std::borrow::Cow;

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, Pending};
use crate::authorization;

pub(super) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    _: Option<&'a Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> Pending<'a> {
    if !is_part(attributes, "approval") {
        return None;
    }
    // The old one counts: a write through this part cannot choose another signer.
    let signer = old.map_or("", |old| old.str("spec.signerName"));
    Some(Box::pin(check(attributes, "approve", signer)))
}

/// True for an update of a certificate request through one of its parts.
pub(super) fn is_part(attributes: &Attributes<'_>, part: &str) -> bool {
    attributes.operation == Operation::Update
        && attributes.subresource == part
        && attributes.is_kind("certificates.k8s.io", "CertificateSigningRequest")
}

/// The signer by name, or all of its domain.
pub(super) async fn check(attributes: &Attributes<'_>, verb: &str, signer: &str) -> Result<(), Status> {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or(""));
    for name in [signer, &domain] {
        let asked = authorization::Attributes {
            name: Cow::Borrowed(name),
            ..authorization::Attributes::resource(attributes.user, verb, "certificates.k8s.io", "signers")
        };
        if attributes.registry.authorizer.wait(&asked).await.is_allowed() {
            return Ok(());
        }
    }
    Err(attributes.forbidden(format!("user not permitted to {verb} requests with signerName {signer:?}")))
}
