//! CertificateApproval: a user who approves or denies a certificate request must be allowed to approve for its signer.

use std::borrow::Cow;

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, PluginFuture};
use crate::authorization;

pub(super) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    _: Option<&'a Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    if !is_part(attributes, "approval") {
        return None;
    }
    // The stored signer is checked: a write to this subresource cannot change it.
    let signer = old.map_or("", |old| old.str("spec.signerName"));
    Some(Box::pin(check(attributes, "approve", signer)))
}

/// Whether the request updates a subresource of a certificate request.
pub(super) fn is_part(attributes: &Attributes<'_>, part: &str) -> bool {
    attributes.operation == Operation::Update
        && attributes.subresource == part
        && attributes.is_kind("certificates.k8s.io", "CertificateSigningRequest")
}

/// The signer by name, or all of its domain.
pub(super) async fn check(attributes: &Attributes<'_>, verb: &str, signer: &str) -> Result<(), Status> {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or(""));
    for name in [signer, &domain] {
        let requested = authorization::Attributes {
            name: Cow::Borrowed(name),
            ..authorization::Attributes::resource(attributes.user, verb, "certificates.k8s.io", "signers")
        };
        if attributes.registry.authorizer.wait(&requested).await.is_allowed() {
            return Ok(());
        }
    }
    Err(attributes.forbidden(format!("user not permitted to {verb} requests with signerName {signer:?}")))
}
