//! Volumes of a pod: exactly one source each.

pub(crate) mod local;
pub(crate) mod network;
pub(crate) mod projected;

use std::collections::HashSet;

use api::Tree;
use api::field::{Errors, Path};

use super::check;
use super::small_set::SmallSet;

/// The fields of the pod that volume validation needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pod<'a> {
    /// Not a template.
    pub is_pod: bool,
    /// Empty for templates and before a name is generated.
    pub name: &'a str,
}

type Validate = fn(&Tree, &Path<'_>, &mut Errors);

/// The sources in validation order; the first of several counts. The second name is the field in the error about
/// several sources, the third the one in errors about the source itself, both with upstream's inconsistencies.
const SOURCES: &[(&str, &str, &str, Validate)] = &[
    ("emptyDir", "emptyDir", "emptyDir", local::empty_dir),
    ("hostPath", "hostPath", "hostPath", local::host_path),
    ("gitRepo", "gitRepo", "gitRepo", local::git_repo),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", network::gce_persistent_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", network::aws_elastic_block_store),
    ("secret", "secret", "secret", local::secret),
    ("nfs", "nfs", "nfs", network::nfs),
    ("iscsi", "iscsi", "iscsi", network::iscsi),
    ("glusterfs", "glusterfs", "glusterfs", network::glusterfs),
    ("flocker", "flocker", "flocker", network::flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", local::persistent_volume_claim),
    ("rbd", "rbd", "rbd", network::rbd),
    ("cinder", "cinder", "cinder", network::cinder),
    ("cephfs", "cephFS", "cephfs", network::cephfs),
    ("quobyte", "quobyte", "quobyte", network::quobyte),
    ("downwardAPI", "downwarAPI", "downwardAPI", local::downward_api),
    ("fc", "fc", "fc", network::fc),
    ("flexVolume", "flexVolume", "flexVolume", network::flex_volume),
    ("configMap", "configMap", "configMap", local::config_map),
    ("azureFile", "azureFile", "azureFile", network::azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", network::vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", network::photon_persistent_disk),
    ("portworxVolume", "portworxVolume", "portworxVolume", network::portworx),
    ("azureDisk", "azureDisk", "azureDisk", network::azure_disk),
    ("storageos", "storageos", "storageos", network::storage_os),
    ("projected", "projected", "projected", projected::validate),
    ("scaleIO", "scaleIO", "scaleIO", network::scale_io),
    ("csi", "csi", "csi", network::csi),
    ("ephemeral", "ephemeral", "ephemeral", local::ephemeral),
    ("image", "image", "image", local::image),
];

/// Validates the volumes and returns those without errors, which containers can mount.
pub(crate) fn validate<'a>(volumes: &'a [Tree], pod: Pod<'_>, path: &Path<'_>, errors: &mut Errors) -> Vec<&'a Tree> {
    let mut right: Vec<&Tree> = Vec::with_capacity(volumes.len());
    let mut names = SmallSet::new();
    let made = ephemeral_claims(volumes, pod);
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let before = errors.len();
        validate_source(volume, pod, &path, errors);
        let name = volume.str("name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        } else {
            check::dns_label(name, &path.field("name"), errors);
        }
        if names.contains(&name) {
            errors.duplicate(&path.field("name"), name);
        }
        if errors.len() == before {
            right.push(volume);
            names.insert(name);
        }
        let claim = volume.str("persistentVolumeClaim.claimName");
        if made.contains(claim) {
            let at = path.field("persistentVolumeClaim");
            let text = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&at.field("claimName"), claim, text);
        }
    }
    right
}

/// Claims of the pod's ephemeral volumes, to which no other volume may refer.
fn ephemeral_claims(volumes: &[Tree], pod: Pod<'_>) -> HashSet<String> {
    if pod.name.is_empty() {
        return HashSet::new();
    }
    let ephemeral = volumes.iter().filter(|volume| volume.has("ephemeral"));
    ephemeral.map(|volume| format!("{}-{}", pod.name, volume.str("name"))).collect()
}

fn validate_source(volume: &Tree, pod: Pod<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for (key, many, own, validate) in SOURCES {
        let Some(source) = volume.get(key) else { continue };
        if found {
            errors.forbidden(&path.field(many), "may not specify more than 1 volume type");
        } else {
            validate(source, &path.field(own), errors);
            validate_with_pod(key, source, volume, pod, path, errors);
        }
        found = true;
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

/// Rules that depend on more than the source.
fn validate_with_pod(key: &str, source: &Tree, volume: &Tree, pod: Pod<'_>, path: &Path<'_>, errors: &mut Errors) {
    let name = volume.str("name");
    match key {
        "iscsi" if source.has("initiatorName") && name.len() + 1 + source.str("targetPortal").len() > 64 => {
            errors.invalid(&path.field("name"), name, network::ISCSI_TOO_LONG);
        }
        "ephemeral" if !pod.name.is_empty() && !name.is_empty() => {
            let claim = format!("{}-{name}", pod.name);
            for message in api::validation::dns1123_subdomain(&claim) {
                errors.invalid(&path.field("name"), name, &format!("PVC name \"{claim}\": {message}"));
            }
        }
        "image" if pod.is_pod && source.str("reference").is_empty() => {
            errors.required(&path.field("image").field("reference"), "");
        }
        _ => {}
    }
}
