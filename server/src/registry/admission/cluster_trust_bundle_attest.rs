//! ClusterTrustBundleAttest: a user who writes a trust bundle of a signer must be allowed to attest for that signer.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, PluginFuture};
use crate::authorization;

pub(super) fn validate<'a>(
    attributes: &'a Attributes<'_>,
    bundle: Option<&'a Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let (group, kind) = ("certificates.k8s.io", "ClusterTrustBundle");
    let write = attributes.is(group, kind, Operation::Create) || attributes.is(group, kind, Operation::Update);
    let bundle = bundle.filter(|_| write)?;
    let signer = bundle.str("spec.signerName");
    let unchanged = old.is_some_and(|old| old.at("spec") == bundle.at("spec"));
    (!signer.is_empty() && !unchanged).then_some(())?;
    Some(Box::pin(check(attributes, signer)))
}

async fn check(attributes: &Attributes<'_>, signer: &str) -> Result<(), Status> {
    let domain = signer.split('/').next().unwrap_or("");
    for name in [signer.to_string(), format!("{domain}/*")] {
        let requested = authorization::Attributes {
            name: name.into(),
            ..authorization::Attributes::resource(attributes.user, "attest", "certificates.k8s.io", "signers")
        };
        if attributes.registry.authorizer.wait(&requested).await.is_allowed() {
            return Ok(());
        }
    }
    Err(attributes.forbidden(format!("user not permitted to attest for signerName {signer:?}")))
}
