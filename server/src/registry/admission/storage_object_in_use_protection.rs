//! A volume or claim that is in use is not deleted: its controller removes the finalizer.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.operation != Operation::Create || !attributes.subresource.is_empty() {
        return Ok(());
    }
    if let Some(finalizer) = finalizer(attributes.resource.kind.kind()) {
        add_finalizer(object, finalizer);
    }
    Ok(())
}

fn finalizer(kind: &str) -> Option<&'static str> {
    match kind {
        "PersistentVolumeClaim" => Some("kubernetes.io/pvc-protection"),
        "PersistentVolume" => Some("kubernetes.io/pv-protection"),
        "VolumeAttributesClass" => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

fn add_finalizer(object: &mut Tree, finalizer: &str) {
    let finalizers = object.child("metadata").list_entry("finalizers");
    if !finalizers.iter().any(|item| item.as_str() == Some(finalizer)) {
        finalizers.push(Tree::from(finalizer));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_finalizer_is_there_once() {
        let mut claim = json(r#"{"metadata":{"finalizers":["a"]}}"#);
        add_finalizer(&mut claim, "b");
        add_finalizer(&mut claim, "b");
        assert_eq!(claim, json(r#"{"metadata":{"finalizers":["a","b"]}}"#));
    }
}
