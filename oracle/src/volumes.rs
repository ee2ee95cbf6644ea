//! VolumeRestrictions, NodeVolumeLimits and VolumeZone.

use std::collections::{BTreeMap, BTreeSet};

use api::Tree;
use thiserror::Error;

use super::{Case, Verdict, by_name, label};

/// The claim name of a volume, and whether it is ephemeral.
pub(crate) fn claim_name(pod: &Tree, volume: &Tree) -> Option<(String, bool)> {
    match (volume.has("persistentVolumeClaim"), volume.has("ephemeral")) {
        (true, _) => Some((volume.str("persistentVolumeClaim.claimName").to_string(), false)),
        (_, true) => Some((format!("{}-{}", pod.str("metadata.name"), volume.str("name")), true)),
        _ => None,
    }
}

/// Why the volumes of a pod cannot be used on any node.
#[derive(Debug, Error)]
pub(crate) enum VolumeError {
    #[error("{resource} \"{name}\" not found")]
    NotFound { resource: &'static str, name: String },
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{0}\"")]
    NotCreated(String),
    #[error("persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\"")]
    Lost { claim: String, volume: String },
    #[error("persistentvolumeclaim \"{0}\" is being deleted")]
    Deleted(String),
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner { namespace: String, claim: String, pod: String },
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    UnboundImmediate,
    #[error("PersistentVolumeClaim had no pv name and storageClass name")]
    NoClass,
    #[error("VolumeBindingMode not set for StorageClass \"{0}\"")]
    NoBindingMode(String),
    #[error("PersistentVolume had no name")]
    NoVolume,
}

impl From<VolumeError> for Verdict {
    fn from(error: VolumeError) -> Verdict {
        Verdict::unresolvable(error.to_string())
    }
}

pub(crate) fn not_found(resource: &'static str, name: &str) -> VolumeError {
    VolumeError::NotFound { resource, name: name.to_string() }
}

/// The class name; the beta annotation takes precedence over the field.
pub(crate) fn class_name(claim: &Tree) -> &str {
    match claim.map("metadata.annotations").get("volume.beta.kubernetes.io/storage-class").and_then(Tree::as_str) {
        Some(name) => name,
        None => claim.str("spec.storageClassName"),
    }
}

pub(crate) fn restrictions(case: &Case<'_>, node: &Tree) -> Verdict {
    let namespace = case.pod.str("metadata.namespace");
    let volumes = case.pod.list("spec.volumes");
    let mut exclusive = BTreeSet::new();
    for volume in volumes.iter().filter(|volume| volume.has("persistentVolumeClaim")) {
        let name = volume.str("persistentVolumeClaim.claimName");
        let Some(claim) = case.world.claim(namespace, name) else {
            return not_found("persistentvolumeclaim", name).into();
        };
        if claim.list("spec.accessModes").iter().any(|mode| mode.as_str() == Some("ReadWriteOncePod")) {
            exclusive.insert(name);
        }
    }
    let mut here = case.world.pods_on(node.str("metadata.name"));
    if here.any(|pod| volumes.iter().any(|a| pod.list("spec.volumes").iter().any(|b| conflict(a, b)))) {
        return Verdict::unschedulable("node(s) had no available disk");
    }
    Verdict::fits_or(!is_claim_used(case, &exclusive), || {
        let reason = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
        Verdict::unschedulable(reason)
    })
}

fn is_claim_used(case: &Case<'_>, names: &BTreeSet<&str>) -> bool {
    let uses = |pod: &Tree| {
        let mut volumes = pod.list("spec.volumes").iter();
        volumes.any(|volume| names.contains(volume.str("persistentVolumeClaim.claimName")))
    };
    let namespace = case.pod.str("metadata.namespace");
    let nodes = case.world.nodes.iter().flat_map(|node| case.world.pods_on(node.str("metadata.name")));
    nodes.filter(|pod| pod.str("metadata.namespace") == namespace).any(uses)
}

/// The same disk, unless both use it read-only.
fn conflict(a: &Tree, b: &Tree) -> bool {
    let same = |path: &str| a.has(head(path)) && b.has(head(path)) && a.str(path) == b.str(path);
    let written = |kind: &str| !(a.at(kind).bool("readOnly") && b.at(kind).bool("readOnly"));
    (same("gcePersistentDisk.pdName") && written("gcePersistentDisk"))
        || same("awsElasticBlockStore.volumeID")
        || (same("iscsi.iqn") && written("iscsi"))
        || (shares_monitor(a, b) && same("rbd.pool") && same("rbd.image") && written("rbd"))
}

fn head(path: &str) -> &str {
    path.split_once('.').map_or(path, |(head, _)| head)
}

fn shares_monitor(a: &Tree, b: &Tree) -> bool {
    a.list("rbd.monitors").iter().any(|monitor| b.list("rbd.monitors").contains(monitor))
}

pub(crate) fn limits(case: &Case<'_>, node: &Tree) -> Verdict {
    let name = node.str("metadata.name");
    let drivers = by_name(&case.world.csi_nodes, name).map_or(&[][..], |csi_node| csi_node.list("spec.drivers"));
    let wanted = disks(case, case.pod);
    let misses = |(driver, _): &&(String, String)| {
        let wants = by_name(&case.world.csi_drivers, driver);
        wants.is_some_and(|wants| wants.bool("spec.preventPodSchedulingIfMissing"))
            && !drivers.iter().any(|there| there.str("name") == driver)
    };
    if let Some((driver, _)) = wanted.iter().find(misses) {
        return Verdict::unschedulable(&format!("{driver} CSI driver is not installed on the node"));
    }
    let limits: BTreeMap<&str, i64> =
        drivers.iter().filter_map(|driver| Some((driver.str("name"), driver.int("allocatable.count")?))).collect();
    let mut attached = attachments(case, name);
    attached.extend(case.world.pods_on(name).flat_map(|pod| disks(case, pod)));
    let added: BTreeSet<(String, String)> = wanted.difference(&attached).cloned().collect();
    let of =
        |disks: &BTreeSet<(String, String)>, driver: &str| disks.iter().filter(|disk| disk.0 == driver).count() as i64;
    let full =
        |(driver, limit): (&&str, &i64)| of(&added, driver) > 0 && of(&attached, driver) + of(&added, driver) > *limit;
    Verdict::fits_or(!limits.iter().any(full), || Verdict::unschedulable("node(s) exceed max volume count"))
}

/// Driver and handle of the pod's volumes. A volume to be provisioned is identified by its claim.
fn disks(case: &Case<'_>, pod: &Tree) -> BTreeSet<(String, String)> {
    let namespace = pod.str("metadata.namespace");
    let names = pod.list("spec.volumes").iter().filter_map(|volume| claim_name(pod, volume));
    let claims = names.filter_map(|(name, _)| case.world.claim(namespace, &name));
    claims.filter_map(|claim| disk(case, claim)).collect()
}

fn disk(case: &Case<'_>, claim: &Tree) -> Option<(String, String)> {
    if let Some(volume) = by_name(&case.world.volumes, claim.str("spec.volumeName")) {
        return csi(volume);
    }
    let class = by_name(&case.world.classes, class_name(claim))?;
    let of_claim = format!("{}/{}", claim.str("metadata.namespace"), claim.str("metadata.name"));
    Some((class.str("provisioner").to_string(), of_claim))
}

fn csi(volume: &Tree) -> Option<(String, String)> {
    let source = volume.at("spec.csi");
    (!source.is_null()).then(|| (source.str("driver").to_string(), source.str("volumeHandle").to_string()))
}

fn attachments(case: &Case<'_>, node: &str) -> BTreeSet<(String, String)> {
    let here = case.world.attachments.iter().filter(|attachment| attachment.str("spec.nodeName") == node);
    let volumes =
        here.filter_map(|attachment| by_name(&case.world.volumes, attachment.str("spec.source.persistentVolumeName")));
    volumes.filter_map(csi).collect()
}

const ZONE: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

pub(crate) fn zone(case: &Case<'_>, node: &Tree) -> Verdict {
    let volumes = match bound_volumes(case) {
        Ok(volumes) => volumes,
        Err(error) => return error.into(),
    };
    // A cluster with one zone need not label its nodes.
    if ZONE.iter().all(|(key, _)| label(node, key).is_none()) {
        return Verdict::Fits;
    }
    let reaches = |volume: &&Tree| {
        ZONE.iter().all(|(key, newer)| match label(volume, key) {
            None => true,
            Some(zones) => {
                let zone = label(node, key).or(label(node, newer));
                zone.is_some_and(|zone| zones.split("__").any(|one| one.trim() == zone))
            }
        })
    };
    Verdict::fits_or(volumes.iter().all(reaches), || Verdict::unresolvable("node(s) had no available volume zone"))
}

fn bound_volumes<'a>(case: &Case<'a>) -> Result<Vec<&'a Tree>, VolumeError> {
    let mut volumes = Vec::new();
    for volume in case.pod.list("spec.volumes").iter().filter(|volume| volume.has("persistentVolumeClaim")) {
        let name = volume.str("persistentVolumeClaim.claimName");
        let claim = case.world.claim(case.pod.str("metadata.namespace"), name);
        let claim = claim.ok_or_else(|| not_found("persistentvolumeclaim", name))?;
        let bound = claim.str("spec.volumeName");
        if bound.is_empty() {
            will_be_bound(case, claim)?;
            continue;
        }
        volumes.push(by_name(&case.world.volumes, bound).ok_or_else(|| not_found("persistentvolume", bound))?);
    }
    Ok(volumes)
}

fn will_be_bound(case: &Case<'_>, claim: &Tree) -> Result<(), VolumeError> {
    let name = class_name(claim);
    if name.is_empty() {
        return Err(VolumeError::NoClass);
    }
    let class = by_name(&case.world.classes, name).ok_or_else(|| not_found("storageclass.storage.k8s.io", name))?;
    match class.str("volumeBindingMode") {
        "WaitForFirstConsumer" => Ok(()),
        "" => Err(VolumeError::NoBindingMode(name.to_string())),
        _ => Err(VolumeError::NoVolume),
    }
}
