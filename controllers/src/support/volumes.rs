//! Shared by the storage controllers: classes, annotations, and the claims of a pod.

use api::Tree;
use client::{Index, Resource, Selection};

pub(crate) const CLAIMS: Selection = Selection::all(Resource::core("persistentvolumeclaims"));
pub(crate) const VOLUMES: Selection = Selection::all(Resource::core("persistentvolumes"));
pub(crate) const CLASSES: Selection = Selection::all(Resource::new("storage.k8s.io", "v1", "storageclasses"));
/// Pods by the claims they use.
pub(crate) const BY_CLAIM: Index = Index { name: "claim", values: claims_of };

pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(crate) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub(crate) const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

pub(crate) fn annotation<'a>(object: &'a Tree, key: &str) -> &'a str {
    object.map("metadata.annotations").str(key)
}

pub(crate) fn has_annotation(object: &Tree, key: &str) -> bool {
    object.map("metadata.annotations").contains(key)
}

/// The storage class of a claim or a volume, or empty.
pub(crate) fn class_of(object: &Tree) -> &str {
    match annotation(object, BETA_CLASS) {
        "" => object.str("spec.storageClassName"),
        class => class,
    }
}

/// Whether a claim has no class; the empty class is a choice.
pub(crate) fn leaves_class_open(claim: &Tree) -> bool {
    !has_annotation(claim, BETA_CLASS) && !claim.at("spec").has("storageClassName")
}

pub(crate) fn is_default_class(class: &Tree) -> bool {
    annotation(class, DEFAULT_CLASS) == "true" || annotation(class, BETA_DEFAULT_CLASS) == "true"
}

/// `NAMESPACE/NAME` of each claim of a pod, including generic ephemeral volumes.
pub(crate) fn claims_of(pod: &Tree) -> Vec<String> {
    let namespace = pod.str("metadata.namespace");
    let name = |volume: &Tree| match volume.has("ephemeral") {
        true => Some(ephemeral_claim(pod, volume)),
        false => Some(volume.str("persistentVolumeClaim.claimName").to_string()).filter(|name| !name.is_empty()),
    };
    pod.list("spec.volumes").iter().filter_map(name).map(|name| format!("{namespace}/{name}")).collect()
}

/// The claim name of an ephemeral volume.
pub(crate) fn ephemeral_claim(pod: &Tree, volume: &Tree) -> String {
    format!("{}-{}", pod.str("metadata.name"), volume.str("name"))
}

/// The key of the claim that a volume is bound to or reserved for; empty if there is none.
pub(crate) fn claim_ref(volume: &Tree) -> String {
    match volume.str("spec.claimRef.name") {
        "" => String::new(),
        name => format!("{}/{name}", volume.str("spec.claimRef.namespace")),
    }
}

/// Whether a volume is bound to or reserved for this claim: by name, and by uid if there is one.
pub(crate) fn is_for(volume: &Tree, claim: &Tree) -> bool {
    let reference = volume.at("spec.claimRef");
    let same = |field: &str| reference.str(field) == claim.str(&format!("metadata.{field}"));
    !reference.is_null() && same("name") && same("namespace") && (reference.str("uid").is_empty() || same("uid"))
}

pub(crate) fn is_deleting(object: &Tree) -> bool {
    object.at("metadata").has("deletionTimestamp")
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn finds_claims_of_a_pod() {
        let named = tree! { "name" => "a", "persistentVolumeClaim" => tree! { "claimName" => "data" } };
        let own = tree! { "name" => "b", "ephemeral" => tree! {} };
        let other = tree! { "name" => "c", "emptyDir" => tree! {} };
        let pod = tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "p" },
            "spec" => tree! { "volumes" => list![named, own, other] },
        };
        assert_eq!(claims_of(&pod), ["n/data", "n/p-b"]);
    }

    #[test]
    fn reads_the_beta_class_annotation() {
        let check = |object: Tree, class: &str, open: bool| {
            assert_eq!((class_of(&object), leaves_class_open(&object)), (class, open), "{object:?}");
        };
        check(tree! { "spec" => tree! {} }, "", true);
        check(tree! { "spec" => tree! { "storageClassName" => "" } }, "", false);
        check(tree! { "spec" => tree! { "storageClassName" => "a" } }, "a", false);
        let beta = tree! { "annotations" => tree! { BETA_CLASS => "b" } };
        check(tree! { "metadata" => beta, "spec" => tree! { "storageClassName" => "a" } }, "b", false);
    }
}
