//! The objects to write. Each function returns None if nothing changes.

use api::{Tree, tree};

use crate::support::volumes::{BIND_COMPLETED, BOUND_BY_CONTROLLER, has_annotation, is_for};

/// The volume bound to the claim.
pub(crate) fn bound_volume(volume: &Tree, claim: &Tree) -> Option<Tree> {
    let meta = claim.at("metadata");
    let reference = volume.at("spec.claimRef");
    let is_whole = ["name", "namespace", "uid"].iter().all(|field| reference.str(field) == meta.str(field));
    let is_marked = is_for(volume, claim) || has_annotation(volume, BOUND_BY_CONTROLLER);
    if is_whole && is_marked {
        return None;
    }
    let mut changed = volume.clone();
    let reference = tree! {
        "kind" => "PersistentVolumeClaim",
        "namespace" => meta.str("namespace"),
        "name" => meta.str("name"),
        "uid" => meta.str("uid"),
        "apiVersion" => "v1",
        "resourceVersion" => meta.str("resourceVersion"),
    };
    changed.child("spec").set("claimRef", reference);
    if !is_marked {
        changed.child("metadata.annotations").set(BOUND_BY_CONTROLLER, "yes");
    }
    Some(changed)
}

/// The unbound volume: available if this controller bound it, otherwise still reserved for its claim.
pub(crate) fn unbound_volume(volume: &Tree) -> Tree {
    let mut changed = volume.clone();
    if has_annotation(volume, BOUND_BY_CONTROLLER) {
        changed.child("spec").remove("claimRef");
        changed.child("metadata.annotations").remove(BOUND_BY_CONTROLLER);
    } else {
        changed.child("spec.claimRef").remove("uid");
    }
    changed
}

pub(crate) fn volume_phase(volume: &Tree, phase: &str, message: &str) -> Option<Tree> {
    if volume.str("status.phase") == phase {
        return None;
    }
    let mut changed = volume.clone();
    changed.child("status").set("phase", phase);
    match message {
        "" => drop(changed.child("status").remove("message")),
        message => changed.child("status").set("message", message),
    }
    Some(changed)
}

/// The claim bound to the volume.
pub(crate) fn bound_claim(claim: &Tree, volume: &Tree) -> Option<Tree> {
    let name = volume.str("metadata.name");
    let is_named = claim.str("spec.volumeName") == name;
    if is_named && has_annotation(claim, BIND_COMPLETED) {
        return None;
    }
    let mut changed = claim.clone();
    if !is_named {
        changed.child("spec").set("volumeName", name);
        changed.child("metadata.annotations").set(BOUND_BY_CONTROLLER, "yes");
    }
    changed.child("metadata.annotations").set(BIND_COMPLETED, "yes");
    Some(changed)
}

/// The claim's phase and the properties of its volume. The capacity is copied only when the claim becomes bound: the
/// file system may be smaller than the volume, and the resizer updates it later.
pub(crate) fn claim_status(claim: &Tree, phase: &str, volume: Option<&Tree>) -> Option<Tree> {
    let mut status = claim.at("status").clone();
    let becomes = status.str("phase") != phase;
    status.set("phase", phase);
    match volume {
        None => ["accessModes", "capacity"].iter().for_each(|field| drop(status.remove(field))),
        Some(volume) => {
            status.set("accessModes", volume.at("spec.accessModes").clone());
            if becomes {
                status.set("capacity", volume.at("spec.capacity").clone());
                match volume.str("spec.volumeAttributesClassName") {
                    "" => drop(status.remove("currentVolumeAttributesClassName")),
                    class => status.set("currentVolumeAttributesClassName", class),
                }
            }
        }
    }
    if status == *claim.at("status") {
        return None;
    }
    let mut changed = claim.clone();
    changed.set("status", status);
    Some(changed)
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn claim() -> Tree {
        tree! {
            "metadata" => tree! { "namespace" => "n", "name" => "c", "uid" => "u", "resourceVersion" => "7" },
            "spec" => tree! {},
            "status" => tree! { "phase" => "Pending" },
        }
    }

    fn volume() -> Tree {
        let spec = tree! { "capacity" => tree! { "storage" => "2Gi" }, "accessModes" => list!["ReadWriteOnce"] };
        tree! { "metadata" => tree! { "name" => "v" }, "spec" => spec, "status" => tree! { "phase" => "Available" } }
    }

    #[test]
    fn binding_writes_each_object_once() {
        let volume = bound_volume(&volume(), &claim()).expect("it is bound");
        let reference = tree! {
            "kind" => "PersistentVolumeClaim", "namespace" => "n", "name" => "c", "uid" => "u",
            "apiVersion" => "v1", "resourceVersion" => "7",
        };
        assert_eq!(*volume.at("spec.claimRef"), reference);
        assert!(has_annotation(&volume, BOUND_BY_CONTROLLER));
        assert_eq!(bound_volume(&volume, &claim()), None);

        let claim = bound_claim(&claim(), &volume).expect("it is bound");
        assert_eq!(claim.str("spec.volumeName"), "v");
        assert!(has_annotation(&claim, BIND_COMPLETED) && has_annotation(&claim, BOUND_BY_CONTROLLER));
        assert_eq!(bound_claim(&claim, &volume), None);

        let claim = claim_status(&claim, "Bound", Some(&volume)).expect("the status changes");
        let status = tree! {
            "phase" => "Bound", "accessModes" => list!["ReadWriteOnce"], "capacity" => tree! { "storage" => "2Gi" },
        };
        assert_eq!(*claim.at("status"), status);
        assert_eq!(claim_status(&claim, "Bound", Some(&volume)), None);
    }

    #[test]
    fn user_bindings_are_not_marked() {
        let mut kept = volume();
        kept.child("spec").set("claimRef", tree! { "namespace" => "n", "name" => "c" });
        let bound = bound_volume(&kept, &claim()).expect("the uid is filled in");
        assert!(!has_annotation(&bound, BOUND_BY_CONTROLLER));
        assert_eq!(unbound_volume(&bound).at("spec.claimRef").str("uid"), "");
        assert_eq!(unbound_volume(&bound).str("spec.claimRef.name"), "c");
        let ours = bound_volume(&volume(), &claim()).expect("it is bound");
        assert!(unbound_volume(&ours).at("spec.claimRef").is_null());
        assert!(!has_annotation(&unbound_volume(&ours), BOUND_BY_CONTROLLER));
        let mut asking = claim();
        asking.child("spec").set("volumeName", "v");
        let bound = bound_claim(&asking, &kept).expect("it is completed");
        assert!(!has_annotation(&bound, BOUND_BY_CONTROLLER));
    }

    #[test]
    fn resized_claims_keep_their_capacity() {
        let mut bound = claim_status(&claim(), "Bound", Some(&volume())).expect("it is bound");
        bound.child("status").set("capacity", tree! { "storage" => "1Gi" });
        assert_eq!(claim_status(&bound, "Bound", Some(&volume())), None);
        let lost = claim_status(&bound, "Lost", None).expect("it is lost");
        assert_eq!(*lost.at("status"), tree! { "phase" => "Lost" });
    }
}
