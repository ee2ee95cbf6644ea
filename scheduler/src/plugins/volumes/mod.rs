//! Shared by the volume plugins: the claims of a pod and their classes.

pub(super) mod limits;
pub(super) mod restrictions;
pub(super) mod zone;

use api::{Str, Tree};

use crate::framework::Rejection;
use podmodel::{Pod, Volume};

/// Claims that a pod refers to by name.
fn named_claims(pod: &Pod) -> impl Iterator<Item = &Str> {
    pod.spec.volumes.iter().filter_map(|volume| match volume {
        Volume::Claim { name, .. } => Some(name),
        _ => None,
    })
}

/// All claims of a pod, including those of ephemeral volumes.
pub(crate) fn claim_names(pod: &Pod) -> impl Iterator<Item = Str> {
    pod.spec.volumes.iter().filter_map(|volume| volume.claim(&pod.name))
}

pub(super) fn not_found(resource: &str, name: &str) -> Rejection {
    Rejection::unresolvable(format!("{resource} \"{name}\" not found"))
}

/// Whether an event adds or changes a claim of the pod.
pub(crate) fn is_own_claim(pod: &Pod, object: Option<&Tree>) -> bool {
    object.is_some_and(|claim| {
        claim.str("metadata.namespace") == pod.namespace
            && claim_names(pod).any(|name| name == claim.str("metadata.name"))
    })
}
