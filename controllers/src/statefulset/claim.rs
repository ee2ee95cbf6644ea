//! The claims of a StatefulSet's pods: created before the pod, and retained after it unless the retention policy
//! requires otherwise. Owner references decide with which object a claim is deleted.

use api::{Tree, tree};

use super::pod;
use crate::support::owner;

/// The claims of the pod with an ordinal.
pub(super) fn claims_of_pod(set: &Tree, ordinal: i64) -> Vec<Tree> {
    set.list("spec.volumeClaimTemplates").iter().map(|template| build(set, template, ordinal)).collect()
}

fn build(set: &Tree, template: &Tree, ordinal: i64) -> Tree {
    let name = template.str("metadata.name");
    let mut metadata = template.at("metadata").clone();
    metadata.set("name", pod::claim_name(set, name, ordinal));
    metadata.set("namespace", set.str("metadata.namespace"));
    let labels = metadata.child("labels");
    for (key, value) in set.map("spec.selector.matchLabels").iter() {
        labels.set(key, value.clone());
    }
    if deletes(set, "whenDeleted") && pod::is_in_range(set, ordinal) {
        metadata.set("ownerReferences", vec![owner::controller_reference(set)]);
    }
    tree! {
        "apiVersion" => "v1",
        "kind" => "PersistentVolumeClaim",
        "metadata" => metadata,
        "spec" => template.at("spec").clone(),
    }
}

fn deletes(set: &Tree, when: &str) -> bool {
    set.map("spec.persistentVolumeClaimRetentionPolicy").str(when) == "Delete"
}

/// The claim with the owner references of the retention policy; None if they are correct or another controller owns
/// the claim.
pub(crate) fn corrected(set: &Tree, pod: &Tree, claim: &Tree) -> Option<Tree> {
    let ordinal = pod::ordinal(pod)?;
    let uids = [set.str("metadata.uid"), pod.str("metadata.uid")];
    let references = claim.list("metadata.ownerReferences");
    let is_ours = |reference: &Tree| uids.contains(&reference.str("uid"));
    if references.iter().any(|reference| reference.bool("controller") && !is_ours(reference)) {
        return None;
    }
    let mut wanted: Vec<Tree> = references.iter().filter(|reference| !is_ours(reference)).cloned().collect();
    let is_condemned = !pod::is_in_range(set, ordinal);
    if is_condemned && deletes(set, "whenScaled") {
        wanted.push(owner::controller_reference(pod));
    } else if deletes(set, "whenDeleted") {
        wanted.push(owner::controller_reference(set));
    }
    let uids_of = |references: &[Tree]| {
        let mut uids: Vec<String> = references.iter().map(|reference| reference.str("uid").to_string()).collect();
        uids.sort();
        uids
    };
    (uids_of(&wanted) != uids_of(references)).then(|| {
        let mut claim = claim.clone();
        claim.set("apiVersion", "v1");
        claim.set("kind", "PersistentVolumeClaim");
        claim.child("metadata").set("ownerReferences", wanted);
        claim
    })
}

/// Whether a claim is deleted with an earlier pod of this name: the new pod waits until it is deleted.
pub(super) fn is_stale(claim: &Tree, pod_name: &str) -> bool {
    let is_of_pod = |reference: &Tree| reference.str("kind") == "Pod" && reference.str("name") == pod_name;
    claim.list("metadata.ownerReferences").iter().any(is_of_pod)
}

/// The possible StatefulSet names of a claim: its name consists of a template, a set and an ordinal.
pub(crate) fn sets_of(claim: &str) -> Vec<&str> {
    let Some((rest, _)) = pod::parent_and_ordinal(claim) else { return Vec::new() };
    rest.match_indices('-').map(|(at, _)| &rest[at + 1..]).collect()
}
