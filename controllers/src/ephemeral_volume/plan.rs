//! Generic ephemeral volumes: a claim for each, created from the template in the pod and owned by it.

use api::{Tree, list, tree};

use crate::support::event_message::EventMessage;
use crate::support::owner;
use crate::support::volumes::{ephemeral_claim, is_deleting};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub create: Vec<Tree>,
    /// Claims with the same name that belong to another owner.
    pub events: Vec<EventMessage>,
}

/// `find` returns the claim with a name in the pod's namespace.
pub(crate) fn plan(pod: &Tree, find: impl Fn(&str) -> Option<std::sync::Arc<Tree>>) -> Plan {
    let mut plan = Plan::default();
    if is_deleting(pod) {
        return plan;
    }
    for volume in pod.list("spec.volumes").iter().filter(|volume| volume.has("ephemeral")) {
        match find(&ephemeral_claim(pod, volume)) {
            None => plan.create.push(claim(pod, volume)),
            Some(there) if is_created_for(&there, pod) => {}
            Some(there) => plan.events.push(taken(pod, volume, &there)),
        }
    }
    plan
}

/// Whether a claim was created for this pod.
pub(crate) fn is_created_for(claim: &Tree, pod: &Tree) -> bool {
    owner::is_controlled_by(claim, pod)
}

fn taken(pod: &Tree, volume: &Tree, claim: &Tree) -> EventMessage {
    let namespace = pod.str("metadata.namespace");
    let message = format!(
        "ephemeral volume {}: PVC {namespace}/{} was not created for pod {namespace}/{} (pod is not owner)",
        volume.str("name"),
        claim.str("metadata.name"),
        pod.str("metadata.name"),
    );
    EventMessage::warning("FailedBinding", message)
}

fn claim(pod: &Tree, volume: &Tree) -> Tree {
    let template = volume.at("ephemeral.volumeClaimTemplate");
    let mut metadata =
        tree! { "name" => ephemeral_claim(pod, volume), "ownerReferences" => list![owner::controller_reference(pod)] };
    for field in ["labels", "annotations"] {
        let value = template.at("metadata").at(field);
        if !value.is_null() {
            metadata.set(field, value.clone());
        }
    }
    tree! {
        "apiVersion" => "v1",
        "kind" => "PersistentVolumeClaim",
        "metadata" => metadata,
        "spec" => template.at("spec").clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pod() -> Tree {
        let template = tree! {
            "metadata" => tree! { "labels" => tree! { "a" => "1" } },
            "spec" => tree! { "accessModes" => list!["ReadWriteOnce"] },
        };
        let own = tree! { "name" => "data", "ephemeral" => tree! { "volumeClaimTemplate" => template } };
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "p", "uid" => "u" },
            "spec" => tree! { "volumes" => list![own, tree! { "name" => "tmp", "emptyDir" => tree! {} }] },
        }
    }

    #[test]
    fn creates_the_claim_once() {
        let made = plan(&pod(), |_| None).create;
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].str("metadata.name"), "p-data");
        assert_eq!(made[0].map("metadata.labels").str("a"), "1");
        assert_eq!(made[0].list("spec.accessModes"), ["ReadWriteOnce".into()]);
        assert!(is_created_for(&made[0], &pod()));
        assert_eq!(plan(&pod(), |_| Some(Arc::new(made[0].clone()))), Plan::default());
        let mut going = pod();
        going.child("metadata").set("deletionTimestamp", "2024-01-01T00:00:00Z");
        assert_eq!(plan(&going, |_| None), Plan::default());
    }

    #[test]
    fn does_not_use_foreign_claims() {
        let other = Arc::new(tree! { "metadata" => tree! { "name" => "p-data" } });
        let plan = plan(&pod(), |_| Some(other.clone()));
        assert_eq!(plan.create, []);
        let want = "ephemeral volume data: PVC n/p-data was not created for pod n/p (pod is not owner)";
        assert_eq!(plan.events[0].message, want);
    }
}
