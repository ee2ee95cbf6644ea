//! CertificateSigning: a user who adds a certificate to a request must be allowed to sign for its signer.

use api::Tree;

use super::certificate_approval::{check, is_part};
use super::{Attributes, PluginFuture};

pub(super) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    request: Option<&'a Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let (request, old) = (request?, old?);
    let same = |path: &str| request.at(path) == old.at(path);
    if !is_part(attributes, "status") || (same("status.certificate") && same("status.conditions")) {
        return None;
    }
    Some(Box::pin(check(attributes, "sign", old.str("spec.signerName"))))
}
