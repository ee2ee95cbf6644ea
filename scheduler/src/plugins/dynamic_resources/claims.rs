//! The claims of a pod: which exist, which are allocated, and which have to be.

use std::sync::Arc;

use api::{Str, Tree, tree};
use devices::{Claim, ExtendedRequests, Inventory, Request, extended_requests, is_extended};
use podmodel::{ClaimSource, Node, Pod};

use super::pending::PendingAllocations;
use crate::snapshot::{Devices, Snapshot};

/// Why a pod has to wait for its claims.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("pod \"{pod}\": ResourceClaim not created yet")]
    NotCreated { pod: Arc<str> },
    #[error("pod \"{pod}\", spec.resourceClaim \"{name}\": none of the supported fields are set")]
    NoSource { pod: Arc<str>, name: Str },
    #[error("resourceclaim.resource.k8s.io \"{0}\" not found")]
    NotFound(Str),
    #[error("resourceclaim \"{0}\" is being deleted")]
    Terminating(Str),
    #[error("ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)")]
    NotOwned { claim: Str, pod: Arc<str> },
    #[error("resource claim {0} is in the process of being allocated")]
    Pending(Str),
    #[error("request {request}: device class {class} does not exist")]
    NoClass { request: Str, class: Str },
}

/// The claims of a pod for one decision.
pub(super) struct PodClaims {
    pub(super) allocated: Vec<Arc<Claim>>,
    pub(super) unallocated: Vec<Arc<Claim>>,
    extended: Extended,
}

/// The claim for extended resources.
enum Extended {
    /// The pod requests none that devices could provide.
    None,
    /// Its requests depend on the node.
    New,
    /// Left from an earlier attempt: it has to be deleted first.
    Stale(Arc<Claim>),
}

/// The claims that a pod refers to, or why they cannot be used.
pub(super) fn of_pod(devices: &Devices, pod: &Pod) -> Result<Vec<Arc<Claim>>, ClaimError> {
    let mut claims = Vec::new();
    for claim in &pod.spec.resource_claims {
        let (name, is_generated) = match &claim.source {
            ClaimSource::Claim(name) => (name, false),
            ClaimSource::Template(_) => match pod.claim_statuses.iter().find(|status| status.name == claim.name) {
                Some(status) => match &status.claim {
                    Some(name) => (name, true),
                    None => continue,
                },
                None => return Err(ClaimError::NotCreated { pod: pod.key.clone() }),
            },
            ClaimSource::Unknown => {
                return Err(ClaimError::NoSource { pod: pod.key.clone(), name: claim.name.clone() });
            }
        };
        let Some(found) = devices.claim(&pod.namespace, name) else {
            return Err(ClaimError::NotFound(name.clone()));
        };
        if found.is_terminating {
            return Err(ClaimError::Terminating(name.clone()));
        }
        if is_generated && found.controller.as_ref() != Some(&pod.uid) {
            return Err(ClaimError::NotOwned { claim: found.key.clone(), pod: pod.key.clone() });
        }
        claims.push(found.clone());
    }
    Ok(claims)
}

/// Whether a device class provides an extended resource that a pod requests.
pub(super) fn wants_extended(pod: &Pod, inventory: &Inventory) -> bool {
    extended_resources(pod, inventory).next().is_some()
}

fn extended_resources<'a>(pod: &'a Pod, inventory: &'a Inventory) -> impl Iterator<Item = &'a Str> {
    let requested = pod.spec.requests.others.iter().filter(|(name, amount)| *amount > 0 && is_extended(name));
    requested.map(|(name, _)| name).filter(|name| inventory.class_of_resource(name).is_some())
}

impl PodClaims {
    /// The claims of a pod, or why it has to wait.
    pub(super) fn of(snapshot: &Snapshot, pending: &PendingAllocations, pod: &Pod) -> Result<PodClaims, ClaimError> {
        let devices = &snapshot.devices;
        let (allocated, unallocated) =
            of_pod(devices, pod)?.into_iter().partition(|claim: &Arc<Claim>| claim.allocation.is_some());
        let extended = match (wants_extended(pod, &devices.inventory), devices.extended_claim(&pod.uid)) {
            (false, _) => Extended::None,
            (true, None) => Extended::New,
            (true, Some(claim)) => Extended::Stale(claim.clone()),
        };
        let claims = PodClaims { allocated, unallocated, extended };
        for claim in &claims.unallocated {
            if pending.is_pending(&claim.uid) {
                return Err(ClaimError::Pending(claim.key.clone()));
            }
            claim.requests.iter().try_for_each(|request| validate_classes(request, &devices.inventory))?;
        }
        Ok(claims)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.allocated.is_empty() && self.unallocated.is_empty() && matches!(self.extended, Extended::None)
    }

    pub(super) fn has_alternatives(&self) -> bool {
        self.unallocated.iter().flat_map(|claim| &claim.requests).any(|request| request.is_list)
    }

    pub(super) fn stale_extended_claim(&self) -> Option<&Arc<Claim>> {
        if let Extended::Stale(claim) = &self.extended { Some(claim) } else { None }
    }

    pub(super) fn has_stale_extended_claim(&self) -> bool {
        self.stale_extended_claim().is_some()
    }

    /// The requests for the resources that a node does not have itself.
    pub(super) fn extended_requests(&self, pod: &Pod, node: &Node, inventory: &Inventory) -> ExtendedRequests {
        if !matches!(self.extended, Extended::New) {
            return ExtendedRequests::default();
        }
        let by_devices = |name: &&Str| node.allocatable.get(name) == 0;
        let resources: Vec<Str> = extended_resources(pod, inventory).filter(by_devices).cloned().collect();
        extended_requests(&pod.spec.containers, &resources, inventory)
    }

    /// The claim that is created for them.
    pub(super) fn extended_claim(&self, extended: &ExtendedRequests) -> Option<Arc<Claim>> {
        if extended.requests.is_empty() {
            return None;
        }
        let devices = tree! { "requests" => extended.requests.clone() };
        let meta = tree! { "name" => "<extended-resources>" };
        Some(Arc::new(Claim::read(&tree! { "metadata" => meta, "spec" => tree! { "devices" => devices } })))
    }
}

fn validate_classes(request: &Request, inventory: &Inventory) -> Result<(), ClaimError> {
    for (index, one) in request.alternatives.iter().enumerate() {
        if inventory.class(&one.class).is_none() {
            let request = request.name_of(index);
            return Err(ClaimError::NoClass { request, class: one.class.clone() });
        }
    }
    Ok(())
}

/// Whether a change of a claim may let a pod be scheduled: it is one of its own, or devices were given back.
pub(super) fn may_help(pod: &Pod, old: Option<&Tree>, new: Option<&Tree>) -> bool {
    let is_allocated = |claim: &Tree| claim.get("status").is_some_and(|status| status.has("allocation"));
    let frees_devices = old.is_some_and(is_allocated) && !new.is_some_and(is_allocated);
    let Some(new) = new else { return frees_devices || old.is_some_and(|old| is_own(pod, old)) };
    let is_changed = old.is_none_or(|old| old.at("status") != new.at("status"));
    frees_devices || (is_changed && is_own(pod, new))
}

fn is_own(pod: &Pod, claim: &Tree) -> bool {
    let (name, namespace) = (claim.str("metadata.name"), claim.str("metadata.namespace"));
    let is_named = |one: &podmodel::PodClaim| matches!(&one.source, ClaimSource::Claim(own) if own == name);
    let mut owners = claim.list("metadata.ownerReferences").iter();
    let is_owned = owners.any(|owner| owner.str("uid") == pod.uid);
    namespace == pod.namespace && (pod.spec.resource_claims.iter().any(is_named) || is_owned)
}
