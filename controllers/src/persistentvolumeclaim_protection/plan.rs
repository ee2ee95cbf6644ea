//! Whether a claim is used: by a pod that protects it from deletion, or by any unfinished pod.

use api::{Tree, tree};

use crate::ephemeral_volume::plan::is_created_for;
use crate::support::volumes::{ephemeral_claim, is_deleting};

pub(super) const FINALIZER: &str = "kubernetes.io/pvc-protection";

/// A pod on a node protects the claims it names, even after it has finished. An unscheduled pod does not: no node
/// starts a pod whose claim is being deleted.
pub(super) fn keeps(pod: &Tree, claim: &Tree) -> bool {
    !pod.str("spec.nodeName").is_empty() && names(pod, claim, !is_shut_down(pod))
}

/// Any unfinished pod uses the claims it names, also without a node.
fn uses(pod: &Tree, claim: &Tree) -> bool {
    !has_ended(pod) && names(pod, claim, true)
}

/// A terminating pod has finished as soon as none of its containers runs, whatever its phase.
pub(super) fn has_ended(pod: &Tree) -> bool {
    let runs = |status: &Tree| !status.has("state.terminated") && !status.has("state.waiting");
    let containers = ["status.initContainerStatuses", "status.containerStatuses", "status.ephemeralContainerStatuses"];
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
        || (is_deleting(pod) && !containers.iter().any(|field| pod.list(field).iter().any(runs)))
}

fn names(pod: &Tree, claim: &Tree, with_own: bool) -> bool {
    let name = claim.str("metadata.name");
    let is_it = |volume: &Tree| match volume.has("ephemeral") {
        true => with_own && ephemeral_claim(pod, volume) == name && is_created_for(claim, pod),
        false => volume.str("persistentVolumeClaim.claimName") == name,
    };
    pod.str("metadata.namespace") == claim.str("metadata.namespace") && pod.list("spec.volumes").iter().any(is_it)
}

/// Its kubelet is done with it, or it was force-deleted; the pod's own finalizers may wait for the claim.
fn is_shut_down(pod: &Tree) -> bool {
    is_deleting(pod) && pod.int("metadata.deletionGracePeriodSeconds") == Some(0)
}

/// The claim with an updated `Unused` condition; None if it is up to date, if the claim is being deleted, or if it
/// has no volume yet, since the binder owns the status until then.
pub(crate) fn unused_condition<'a>(claim: &Tree, pods: impl IntoIterator<Item = &'a Tree>, now: &str) -> Option<Tree> {
    let is_used = pods.into_iter().any(|pod| uses(pod, claim));
    let (status, reason, message) = match is_used {
        true => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
        false => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
    };
    let conditions = claim.list("status.conditions");
    let there = conditions.iter().position(|condition| condition.str("type") == "Unused");
    let is_bound = claim.str("status.phase") == "Bound";
    if !is_bound || is_deleting(claim) || there.is_some_and(|at| conditions[at].str("status") == status) {
        return None;
    }
    let condition = tree! {
        "type" => "Unused",
        "status" => status,
        "lastProbeTime" => Tree::Null,
        "lastTransitionTime" => now,
        "reason" => reason,
        "message" => message,
    };
    let mut changed = claim.clone();
    let conditions = changed.child("status").list_entry("conditions");
    match there {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn claim() -> Tree {
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "c" },
            "status" => tree! { "phase" => "Bound" },
        }
    }

    fn pod(node: &str, phase: &str, claim: &str) -> Tree {
        let volume = tree! { "name" => "v", "persistentVolumeClaim" => tree! { "claimName" => claim } };
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "p", "uid" => "u" },
            "spec" => tree! { "nodeName" => node, "volumes" => list![volume] },
            "status" => tree! { "phase" => phase },
        }
    }

    #[test]
    fn scheduled_pods_protect_claims() {
        assert!(keeps(&pod("node", "Running", "c"), &claim()));
        assert!(keeps(&pod("node", "Succeeded", "c"), &claim()));
        assert!(!keeps(&pod("", "Pending", "c"), &claim()));
        assert!(!keeps(&pod("node", "Running", "other"), &claim()));
    }

    #[test]
    fn ephemeral_claims_are_protected_until_shutdown() {
        let owner = tree! { "uid" => "u", "controller" => true };
        let metadata = tree! { "namespace" => "n", "name" => "p-v", "ownerReferences" => list![owner] };
        let own = tree! { "metadata" => metadata };
        let mut pod = pod("node", "Running", "");
        pod.child("spec").set("volumes", list![tree! { "name" => "v", "ephemeral" => tree! {} }]);
        assert!(keeps(&pod, &own));
        pod.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
        pod.child("metadata").set("deletionGracePeriodSeconds", 0);
        assert!(!keeps(&pod, &own));
    }

    #[test]
    fn updates_unused_condition() {
        let time = "2024-01-01T00:00:00Z";
        let unused = unused_condition(&claim(), [], time).expect("the status changes");
        let condition = &unused.list("status.conditions")[0];
        assert_eq!((condition.str("status"), condition.str("reason")), ("True", "NoPodsUsingPVC"));
        assert_eq!(unused_condition(&unused, [], "later"), None);
        assert_eq!(unused_condition(&unused, [&pod("node", "Failed", "c")], "later"), None);
        let used = unused_condition(&unused, [&pod("", "Pending", "c")], "later").expect("the status changes");
        let condition = &used.list("status.conditions")[0];
        assert_eq!((condition.str("status"), condition.str("lastTransitionTime")), ("False", "later"));
        let mut ends = pod("node", "Running", "c");
        ends.child("metadata").set("deletionTimestamp", time);
        assert_eq!(unused_condition(&unused, [&ends], "later"), None);
        let running = list![tree! { "name" => "x", "state" => tree! { "running" => tree! {} } }];
        ends.child("status").set("containerStatuses", running);
        assert!(unused_condition(&unused, [&ends], "later").is_some());
        let mut pending = claim();
        pending.child("status").set("phase", "Pending");
        assert_eq!(unused_condition(&pending, [], time), None);
        let mut going = claim();
        going.child("metadata").set("deletionTimestamp", time);
        assert_eq!(unused_condition(&going, [], time), None);
    }
}
