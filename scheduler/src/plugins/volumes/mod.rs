//! What the plugins of volumes share: claims of a pod, their classes, and what is behind them.

pub mod limits;
pub mod restrictions;
pub mod zone;

use api::{Str, Tree};

use crate::framework::Refusal;
use crate::model::{Pod, Volume};

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
