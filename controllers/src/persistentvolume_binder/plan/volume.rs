//! Plans a volume.

use api::Tree;

use super::matching::mode;
use crate::support::event_message::EventMessage;
use crate::support::volumes::{MIGRATED_TO, PROVISIONED_BY, annotation, has_annotation};

#[derive(Debug, PartialEq)]
pub(crate) enum Plan {
    /// The phase stays or becomes `Available` or `Bound`.
    Phase(&'static str),
    /// The sync of the claim completes the binding.
    LeaveToClaim,
    /// The two can never be bound: the events for the volume and the claim.
    Mismatch { volume: EventMessage, claim: EventMessage },
    /// The claim was bound to another volume.
    Unbind,
    /// The claim does not exist. `missing` means that no claim of the name was observed, which also happens if the claim is
    /// newer than the informer.
    Release { missing: bool, reclaim: ReclaimAction },
}

#[derive(Debug, PartialEq)]
pub(crate) enum ReclaimAction {
    /// Retained, or deleted by its provisioner.
    Leave,
    /// The reclaim policy cannot be carried out.
    Fail(EventMessage),
}

/// `claim` is the claim of the volume's claimRef.
pub(crate) fn plan(volume: &Tree, claim: Option<&Tree>) -> Plan {
    let uid = volume.str("spec.claimRef.uid");
    if uid.is_empty() {
        return Plan::Phase("Available");
    }
    let Some(claim) = claim else { return release(volume, true) };
    let name = volume.str("metadata.name");
    match claim.str("spec.volumeName") {
        // Another claim of the same name: the referenced one was deleted.
        _ if claim.str("metadata.uid") != uid => release(volume, false),
        "" if mode(claim) != mode(volume) => mismatch(volume, claim),
        "" => Plan::LeaveToClaim,
        other if other == name => Plan::Phase("Bound"),
        // The volume was provisioned for the claim, which was bound to another volume.
        _ if has_annotation(volume, PROVISIONED_BY) && policy(volume) == "Delete" => release(volume, false),
        _ => Plan::Unbind,
    }
}

fn mismatch(volume: &Tree, claim: &Tree) -> Plan {
    let event = |text: String| EventMessage::warning("VolumeMismatch", text);
    Plan::Mismatch {
        volume: event(format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
            claim.str("metadata.name")
        )),
        claim: event(format!(
            "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
            volume.str("metadata.name")
        )),
    }
}

fn release(volume: &Tree, missing: bool) -> Plan {
    let reclaim = if has_annotation(volume, MIGRATED_TO) { ReclaimAction::Leave } else { reclaim(volume) };
    Plan::Release { missing, reclaim }
}

fn policy(volume: &Tree) -> &str {
    volume.str("spec.persistentVolumeReclaimPolicy")
}

fn reclaim(volume: &Tree) -> ReclaimAction {
    match policy(volume) {
        "Retain" => ReclaimAction::Leave,
        "Delete" => delete(volume),
        "Recycle" => ReclaimAction::Fail(EventMessage::warning(
            "VolumeFailedRecycle",
            "No recycler plugin found for the volume!",
        )),
        _ => ReclaimAction::Fail(EventMessage::warning(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        )),
    }
}

/// A volume is deleted by its provisioner; a manually created one has none.
fn delete(volume: &Tree) -> ReclaimAction {
    let maker = annotation(volume, PROVISIONED_BY);
    let failed = |why: String| ReclaimAction::Fail(EventMessage::warning("VolumeFailedDelete", why));
    let path = volume.str("spec.hostPath.path");
    if !maker.is_empty() && !maker.starts_with("kubernetes.io/") {
        return ReclaimAction::Leave;
    }
    if !path.is_empty() && !path.starts_with("/tmp/") {
        return failed(format!("host_path deleter only supports /tmp/.+ but received provided {path}"));
    }
    let name = volume.str("metadata.name");
    failed(format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"))
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn volume(uid: &str, policy: &str) -> Tree {
        tree! {
            "metadata" => tree! { "name" => "v", "annotations" => tree! {} },
            "spec" => tree! {
                "claimRef" => tree! { "namespace" => "n", "name" => "c", "uid" => uid },
                "persistentVolumeReclaimPolicy" => policy,
            },
        }
    }

    fn claim(uid: &str, volume: &str) -> Tree {
        tree! { "metadata" => tree! { "name" => "c", "uid" => uid }, "spec" => tree! { "volumeName" => volume } }
    }

    #[test]
    fn phase_follows_the_claim() {
        let check = |volume: &Tree, claim: Option<&Tree>, want: Plan| assert_eq!(plan(volume, claim), want);
        let mut free = volume("", "Retain");
        free.child("spec").remove("claimRef");
        check(&free, None, Plan::Phase("Available"));
        check(&volume("", "Retain"), None, Plan::Phase("Available"));
        check(&volume("u", "Retain"), Some(&claim("u", "v")), Plan::Phase("Bound"));
        check(&volume("u", "Retain"), Some(&claim("u", "")), Plan::LeaveToClaim);
        check(&volume("u", "Retain"), Some(&claim("u", "other")), Plan::Unbind);
        check(&volume("u", "Retain"), None, Plan::Release { missing: true, reclaim: ReclaimAction::Leave });
        let another = Plan::Release { missing: false, reclaim: ReclaimAction::Leave };
        check(&volume("u", "Retain"), Some(&claim("x", "v")), another);
        let mut block = claim("u", "");
        block.child("spec").set("volumeMode", "Block");
        assert!(matches!(plan(&volume("u", "Retain"), Some(&block)), Plan::Mismatch { .. }));
    }

    #[test]
    fn reclaims_by_policy() {
        let check = |volume: &Tree, want: Option<&str>| {
            let Plan::Release { reclaim, .. } = plan(volume, None) else { panic!("its claim is deleted") };
            let got = match &reclaim {
                ReclaimAction::Leave => None,
                ReclaimAction::Fail(event) => Some(event.message.as_str()),
            };
            assert_eq!(got, want);
        };
        check(&volume("u", "Recycle"), Some("No recycler plugin found for the volume!"));
        check(&volume("u", "x"), Some("Volume has unrecognized PersistentVolumeReclaimPolicy"));
        let none = "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
        check(&volume("u", "Delete"), Some(none));
        let mut path = volume("u", "Delete");
        path.child("spec").set("hostPath", tree! { "path" => "/x" });
        check(&path, Some("host_path deleter only supports /tmp/.+ but received provided /x"));
        let mut made = volume("u", "Delete");
        made.child("metadata.annotations").set(PROVISIONED_BY, "example.com/p");
        check(&made, None);
        assert!(matches!(plan(&made, Some(&claim("u", "other"))), Plan::Release { missing: false, .. }));
    }
}
