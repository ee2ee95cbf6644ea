//! The resource claims of pods.

use api::Tree;
use client::index::Index;
use client::{Resource, Selection, key};

pub(crate) const CLAIMS: Selection = Selection::all(Resource::new("resource.k8s.io", "v1", "resourceclaims"));
/// Pods by the keys of the resource claims that they use.
pub(crate) const BY_RESOURCE_CLAIM: Index = Index { name: "resourceclaim", values: keys_of };

/// A claim of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClaimName<'a> {
    /// It has this name; `is_generated` if it was created from a template.
    Known { name: &'a str, is_generated: bool },
    /// The pod needs none.
    NotNeeded,
    /// It was not created from its template yet.
    NotCreated,
}

/// The name of the claim for an entry of `spec.resourceClaims`.
pub(crate) fn claim_name<'a>(pod: &'a Tree, claim: &'a Tree) -> ClaimName<'a> {
    if let Some(name) = claim.at("resourceClaimName").as_str() {
        return ClaimName::Known { name, is_generated: false };
    }
    let name = claim.str("name");
    match pod.list("status.resourceClaimStatuses").iter().find(|status| status.str("name") == name) {
        None => ClaimName::NotCreated,
        Some(status) => match status.at("resourceClaimName").as_str() {
            Some(name) => ClaimName::Known { name, is_generated: true },
            None => ClaimName::NotNeeded,
        },
    }
}

/// The names of all claims of a pod that exist by what the pod says, with that for its extended resources.
pub(crate) fn claim_names(pod: &Tree) -> impl Iterator<Item = &str> {
    let own = pod.list("spec.resourceClaims").iter().filter_map(|claim| match claim_name(pod, claim) {
        ClaimName::Known { name, .. } => Some(name),
        _ => None,
    });
    let extended = pod.at("status.extendedResourceClaimStatus").str("resourceClaimName");
    own.chain(Some(extended).filter(|name| !name.is_empty()))
}

fn keys_of(pod: &Tree) -> Vec<String> {
    let namespace = pod.str("metadata.namespace");
    claim_names(pod).map(|name| key(namespace, name).to_string()).collect()
}

/// Whether a pod may use a claim.
pub(crate) fn is_reserved_for(claim: &Tree, pod: &Tree) -> bool {
    let uid = pod.str("metadata.uid");
    claim.list("status.reservedFor").iter().any(|consumer| consumer.str("uid") == uid)
}

/// Whether a claim has devices.
pub(crate) fn is_allocated(claim: &Tree) -> bool {
    claim.get("status").is_some_and(|status| status.has("allocation"))
}
