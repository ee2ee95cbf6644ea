//! A volume or claim that is in use is not deleted: its controller removes the finalizer.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation};

pub fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.operation != Operation::Create || !attributes.subresource.is_empty() {
        return Ok(());
    }
    let finalizer = match attributes.resource.kind.kind {
        "PersistentVolumeClaim" => "kubernetes.io/pvc-protection",
        "PersistentVolume" => "kubernetes.io/pv-protection",
        "VolumeAttributesClass" => "kubernetes.io/vac-protection",
        _ => return Ok(()),
    };
    let finalizers = object.child("metadata").list_entry("finalizers");
    if !finalizers.iter().any(|item| item.as_str() == Some(finalizer)) {
        finalizers.push(Tree::from(finalizer));
    }
    Ok(())
}
