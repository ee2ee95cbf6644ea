//! Allocations that are decided, but not written or not observed yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Str, Tree};
use devices::{AllocatedState, Allocation, Claim, ClaimAllocation, ExtendedRequests};

use crate::snapshot::Snapshot;

/// A claim of a pod that was assumed on a node.
pub(super) struct ReservedClaim {
    pub(super) claim: Arc<Claim>,
    /// The allocation to write; None if it has one.
    pub(super) allocation: Option<Tree>,
}

impl ReservedClaim {
    pub(super) fn allocated(claim: Arc<Claim>) -> ReservedClaim {
        ReservedClaim { claim, allocation: None }
    }

    pub(super) fn new(claim: Arc<Claim>, found: &ClaimAllocation, share_id: impl FnMut() -> Str) -> ReservedClaim {
        ReservedClaim { claim, allocation: Some(found.to_tree(share_id)) }
    }
}

/// The claims of a pod that was assumed on a node.
pub(super) struct Reservation {
    pub(super) claims: Vec<ReservedClaim>,
    /// The allocation of the claim for extended resources, which does not exist yet.
    pub(super) extended: Option<(Tree, ExtendedRequests)>,
}

/// A claim with the version in which its allocation was written.
pub(super) struct WrittenClaim {
    pub(super) namespace: Str,
    pub(super) name: Str,
    pub(super) uid: Str,
    pub(super) version: u64,
}

struct PodEntry {
    reservation: Arc<Reservation>,
    allocations: Vec<Allocation>,
    /// Once everything is written.
    written: Option<Vec<WrittenClaim>>,
}

#[derive(Default)]
pub(crate) struct PendingAllocations {
    /// By pod.
    pods: BTreeMap<Str, PodEntry>,
    /// The devices of all of them.
    allocated: AllocatedState,
    /// Claims that a failed pod does not need: by pod.
    releases: BTreeMap<Str, Arc<Claim>>,
}

/// A pod without an attempt in progress has one claim to release at most.
const MAX_RELEASES: usize = 4096;

impl PendingAllocations {
    pub(super) fn allocated(&self) -> &AllocatedState {
        &self.allocated
    }

    pub(super) fn reservation(&self, pod: &str) -> Option<Arc<Reservation>> {
        self.pods.get(pod).filter(|entry| entry.written.is_none()).map(|entry| entry.reservation.clone())
    }

    /// Whether a pod is assumed on a node with its devices.
    pub(super) fn has_pod(&self, pod: &str) -> bool {
        self.pods.contains_key(pod)
    }

    /// Whether a claim is about to be allocated.
    pub(super) fn is_pending(&self, claim: &str) -> bool {
        let allocates = |one: &ReservedClaim| one.claim.uid == claim && one.allocation.is_some();
        self.pods.values().any(|entry| entry.reservation.claims.iter().any(allocates))
    }

    pub(super) fn take(&mut self, pod: &str, reservation: Reservation, allocations: Vec<Allocation>) {
        self.release(pod);
        allocations.iter().for_each(|one| self.allocated.add(one));
        let entry = PodEntry { reservation: Arc::new(reservation), allocations, written: None };
        self.pods.insert(Str::new(pod), entry);
    }

    pub(super) fn release(&mut self, pod: &str) {
        if let Some(entry) = self.pods.remove(pod) {
            entry.allocations.iter().for_each(|one| self.allocated.remove(one));
        }
    }

    /// The claims were written: their devices stay reserved until the snapshot has them.
    pub(super) fn written(&mut self, pod: &str, claims: Vec<WrittenClaim>) {
        if let Some(entry) = self.pods.get_mut(pod) {
            entry.written = Some(claims);
        }
    }

    /// Drops what the snapshot shows by now, and what belongs to pods that were deleted.
    pub(super) fn drop_observed(&mut self, snapshot: &Snapshot) {
        let is_observed = |claim: &WrittenClaim| {
            let found = snapshot.devices.claim(&claim.namespace, &claim.name);
            found.is_some_and(|found| found.uid != claim.uid || version_of(&found.version) >= claim.version)
        };
        let is_over = |pod: &Str, entry: &PodEntry| {
            let all_observed = |claims: &Vec<WrittenClaim>| claims.iter().all(is_observed);
            entry.written.as_ref().is_some_and(|claims| all_observed(claims) || snapshot.placed(pod).is_none())
        };
        let over: Vec<Str> =
            self.pods.iter().filter(|(pod, entry)| is_over(pod, entry)).map(|(pod, _)| pod.clone()).collect();
        over.iter().for_each(|pod| self.release(pod));
    }

    pub(super) fn release_later(&mut self, pod: &str, claim: Arc<Claim>) {
        if self.releases.len() < MAX_RELEASES {
            self.releases.insert(Str::new(pod), claim);
        }
    }

    pub(super) fn take_release(&mut self, pod: &str) -> Option<Arc<Claim>> {
        self.releases.remove(pod)
    }
}

/// Versions of one server are numbers that grow.
pub(super) fn version_of(text: &str) -> u64 {
    text.parse().unwrap_or(u64::MAX)
}
