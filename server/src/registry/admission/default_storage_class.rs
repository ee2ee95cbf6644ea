//! DefaultStorageClass: a claim without a storage class gets the default class.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, default_class};

const ANNOTATIONS: &[&str] =
    &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    claim: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !attributes.is("", "PersistentVolumeClaim", Operation::Create) || has_class(claim) {
        return Ok(());
    }
    if let Some(class) = default_class(attributes.registry.storage.objects("storageclasses", ""), ANNOTATIONS) {
        claim.child("spec").set("storageClassName", class.str("metadata.name"));
    }
    Ok(())
}

/// An empty name is a name: it requests no class.
fn has_class(claim: &Tree) -> bool {
    claim.at("spec").has("storageClassName")
        || claim.map("metadata.annotations").contains("volume.beta.kubernetes.io/storage-class")
}
