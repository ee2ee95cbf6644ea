//! What the plugins of volumes share: claims of a pod, their classes, and what is behind them.

pub mod limits;
pub mod restrictions;
pub mod zone;

use std::sync::Arc;

use api::{Str, Tree};

use crate::framework::Refusal;
use crate::model::{Pod, Volume};
use crate::snapshot::{Kind, Objects};

pub fn claim(objects: &dyn Objects, namespace: &str, name: &str) -> Option<Arc<Tree>> {
    objects.get(Kind::PersistentVolumeClaim, &format!("{namespace}/{name}"))
}

/// Names of the claims that a pod names itself.
fn named_claims(pod: &Pod) -> impl Iterator<Item = &Str> {
    pod.spec.volumes.iter().filter_map(|volume| match volume {
        Volume::Claim { name, .. } => Some(name),
        _ => None,
    })
}

/// Names of all its claims, those that are made for the pod alone included.
pub fn claim_names(pod: &Pod) -> impl Iterator<Item = Str> {
    pod.spec.volumes.iter().filter_map(|volume| volume.claim(&pod.name))
}

/// The class of a claim or a volume; the annotation is older than the field and wins.
pub fn class_name(object: &Tree) -> &str {
    let annotations = object.map("metadata.annotations");
    match annotations.get("volume.beta.kubernetes.io/storage-class").and_then(Tree::as_str) {
        Some(name) => name,
        None => object.str("spec.storageClassName"),
    }
}

pub fn not_found(resource: &str, name: &str) -> Refusal {
    Refusal::unresolvable(format!("{resource} \"{name}\" not found"))
}

/// Whether an event brings or changes a claim that the pod uses.
pub fn is_own_claim(pod: &Pod, object: Option<&Tree>) -> bool {
    object.is_some_and(|claim| {
        claim.str("metadata.namespace") == pod.namespace
            && claim_names(pod).any(|name| name == claim.str("metadata.name"))
    })
}
