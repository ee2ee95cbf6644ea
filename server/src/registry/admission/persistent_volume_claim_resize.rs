//! A claim grows only if its storage class allows it.

use api::Tree;
use api::status::Status;
use kinds::resources::read;

use super::{Attributes, Operation};

pub(super) fn validate(
    attributes: &Attributes<'_>,
    claim: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let (Some(claim), Some(old)) = (claim, old) else { return Ok(()) };
    if !attributes.is("", "PersistentVolumeClaim", Operation::Update) || !is_expansion(claim, old) {
        return Ok(());
    }
    if old.str("status.phase") != "Bound" {
        return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class_name(claim).filter(|class| class_name(old) == Some(class));
    let class = class.and_then(|class| attributes.registry.storage.object("storageclasses", class));
    if class.is_some_and(|class| class.bool("allowVolumeExpansion")) {
        return Ok(());
    }
    Err(attributes.forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}

fn is_expansion(claim: &Tree, old: &Tree) -> bool {
    let size = |claim: &Tree| read(claim.at("spec.resources.requests.storage"));
    size(claim) > size(old)
}

/// The old annotation counts before the field.
fn class_name(claim: &Tree) -> Option<&str> {
    let annotation = claim.map("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    let name = annotation.unwrap_or(claim.at("spec.storageClassName"));
    name.as_str().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn a_larger_request_is_growth() {
        let claim = |size: &str| json(&format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#));
        assert!(is_expansion(&claim("2Gi"), &claim("1Gi")));
        assert!(!is_expansion(&claim("1024Mi"), &claim("1Gi")));
    }

    #[test]
    fn the_class_comes_from_annotation_or_field() {
        let check = |claim: &str, want: Option<&str>| assert_eq!(class_name(&json(claim)), want);
        check(r#"{"spec":{"storageClassName":"a"}}"#, Some("a"));
        check(r#"{"spec":{"storageClassName":""}}"#, None);
        check(
            r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"b"}},"spec":{"storageClassName":"a"}}"#,
            Some("b"),
        );
    }
}
