//! PersistentVolume.

use api::field::{Errors, Path};
use api::validation::dns1123_label;
use api::{Tree, time, tree};

use super::persistent_volume_claim::{CLASS_ANNOTATION, CLASS_WARNING, access_modes, class, phase};
use crate::checks::validate_driver_name;
use crate::kind::{Context, Kind, Lifecycle, StatusRules, Subresource, Verb, column};
use crate::meta::validate_immutable;
use crate::podspec::affinity::validate_node_selector;
use crate::podspec::claim::{VOLUME_MODES, validate_access_modes, validate_class};
use crate::podspec::volume::{local, network};
use crate::podspec::warnings::labels;
use crate::podspec::{azure_disk, iscsi, rbd, scale_io};
use crate::resources::{self, read};
use crate::{cells, internal, prepare};

pub(crate) static KIND: Kind = Kind {
    short_names: &["pv"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Capacity", "string", "", 0),
        column("Access Modes", "string", "", 0),
        column("Reclaim Policy", "string", "", 0),
        column("Status", "string", "", 0),
        column("Claim", "string", "", 0),
        column("StorageClass", "string", "", 0),
        column("VolumeAttributesClass", "string", "", 0),
        column("Reason", "string", "", 0),
        column("Age", "string", "", 0),
        column("VolumeMode", "string", "", 1),
    ],
    set_defaults,
    prepare_create,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    warnings,
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare_status, validate: prepare::any_status, reset: &["spec"] }),
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume")
};

const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];

type Validate = fn(&Tree, &Path<'_>, &mut Errors);

/// The sources in validation order, with the field name in errors about the source.
const SOURCES: &[(&str, &str, Validate)] = &[
    ("hostPath", "hostPath", local::host_path),
    ("gcePersistentDisk", "persistentDisk", network::gce_persistent_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", network::aws_elastic_block_store),
    ("glusterfs", "glusterfs", network::glusterfs),
    ("flocker", "flocker", network::flocker),
    ("nfs", "nfs", network::nfs),
    ("rbd", "rbd", network::rbd),
    ("quobyte", "quobyte", network::quobyte),
    ("cephfs", "cephfs", network::cephfs),
    ("iscsi", "iscsi", network::iscsi),
    ("cinder", "cinder", network::cinder),
    ("fc", "fc", network::fc),
    ("flexVolume", "flexVolume", network::flex_volume),
    ("azureFile", "azureFile", network::azure_file),
    ("vsphereVolume", "vsphereVolume", network::vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", network::photon_persistent_disk),
    ("portworxVolume", "portworxVolume", network::portworx),
    ("azureDisk", "azureDisk", network::azure_disk),
    ("scaleIO", "scaleIO", network::scale_io),
    ("local", "local", validate_local),
    ("storageos", "storageos", network::storage_os),
    ("csi", "csi", validate_csi),
];

type SetDefaults = fn(&mut Tree);

const SOURCE_DEFAULTS: &[(&str, SetDefaults)] = &[
    ("hostPath", |source| source.set_default("type", "")),
    ("iscsi", iscsi),
    ("rbd", rbd),
    ("scaleIO", scale_io),
    ("azureDisk", azure_disk),
];

fn set_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    if spec.str("persistentVolumeReclaimPolicy").is_empty() {
        spec.set("persistentVolumeReclaimPolicy", "Retain");
    }
    spec.set_default("volumeMode", "Filesystem");
    resources::round_up(spec, "capacity");
    for (key, set) in SOURCE_DEFAULTS {
        if let Some(source) = spec.get_mut(key) {
            set(source);
        }
    }
    object.child("status").set_default("phase", "Pending");
}

fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    let now = time::format_seconds(context.now);
    object.set("status", tree! { "phase" => "Pending", "lastPhaseTransitionTime" => now });
}

/// The time of the last phase change is kept for clients that do not set it.
fn prepare_status(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    const TIME: &str = "lastPhaseTransitionTime";
    prepare::keep_spec(object, old, context);
    let changed = object.at("status.phase") != old.at("status.phase");
    let status = object.child("status");
    if changed && (!status.has(TIME) || status.at(TIME) == old.at("status.lastPhaseTransitionTime")) {
        status.set(TIME, time::format_seconds(context.now));
    } else if !changed && !status.has(TIME) {
        crate::kind::keep_old(status, old.at("status"), TIME);
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let (spec, path) = (object.at("spec"), Path::root("spec"));
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        errors.required(&path.field("accessModes"), "");
    }
    validate_access_modes(modes, &path.field("accessModes"), errors);
    validate_capacity(spec, &path.field("capacity"), errors);
    let policy = spec.str("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.not_supported(&path.field("persistentVolumeReclaimPolicy"), policy, RECLAIM_POLICIES);
    }
    validate_affinity(spec, &path.field("nodeAffinity"), errors);
    validate_sources(spec, &path, errors);
    if is_root(spec.str("hostPath.path")) && policy == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.field("persistentVolumeReclaimPolicy"), detail);
    }
    validate_class(spec.str("storageClassName"), &path.field("storageClassName"), errors);
    let mode = spec.str("volumeMode");
    if !mode.is_empty() && !VOLUME_MODES.contains(&mode) {
        errors.not_supported(&path.field("volumeMode"), mode, VOLUME_MODES);
    }
    let class = spec.str("volumeAttributesClassName");
    validate_class(class, &path.field("volumeAttributesClassName"), errors);
}

/// The spec of an inline volume in an attachment.
pub(crate) fn validate_inline_spec(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        errors.required(&path.field("accessModes"), "");
    }
    validate_access_modes(modes, &path.field("accessModes"), errors);
    let inline = "in the context of inline volumes";
    if !matches!(spec.str("persistentVolumeReclaimPolicy"), "" | "Retain") {
        let detail = format!("may only be Retain {inline}");
        errors.forbidden(&path.field("persistentVolumeReclaimPolicy"), &detail);
    }
    for field in ["nodeAffinity", "storageClassName", "volumeAttributesClassName"] {
        if spec.has(field) {
            errors.forbidden(&path.field(field), &format!("may not be specified {inline}"));
        }
    }
    validate_sources(spec, path, errors);
    if !matches!(spec.str("volumeMode"), "" | "Filesystem") {
        let detail = format!("may not specify volumeMode other than Filesystem {inline}");
        errors.forbidden(&path.field("volumeMode"), &detail);
    }
}

fn validate_capacity(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let capacity = spec.map("capacity");
    if capacity.is_empty() {
        errors.required(path, "");
    }
    if !capacity.contains("storage") || capacity.len() > 1 {
        errors.not_supported(path, spec.at("capacity"), &["storage"]);
    }
    for (name, quantity) in capacity.iter() {
        let value = read(quantity).value();
        if value < 0 {
            errors.invalid(&path.key(name), value, "must be a valid resource quantity");
        }
        resources::validate_positive(quantity, &path.key(name), errors);
    }
}

fn validate_affinity(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(affinity) = spec.get("nodeAffinity") else { return };
    match affinity.get("required") {
        Some(selector) => validate_node_selector(selector, &path.field("required"), errors),
        None => errors.required(&path.field("required"), "must specify required node constraints"),
    }
}

fn validate_sources(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for (key, own, validate) in SOURCES {
        let Some(source) = spec.get(key) else { continue };
        if found && *key != "flexVolume" {
            let key = if *key == "cephfs" { "cephFS" } else { key };
            errors.forbidden(&path.field(key), "may not specify more than 1 volume type");
        } else {
            validate(source, &path.field(own), errors);
        }
        if *key == "local" && !found && !spec.has("nodeAffinity") {
            errors.required(&path.field("nodeAffinity"), "Local volume requires node affinity");
        }
        found = true;
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn validate_local(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match source.str("path") {
        "" => errors.required(&path.field("path"), ""),
        target if target.split('/').any(|part| part == "..") => {
            errors.invalid(&path.field("path"), target, "must not contain '..'");
        }
        _ => {}
    }
}

fn validate_csi(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_driver_name(source.str("driver"), &path.field("driver"), errors);
    if source.str("volumeHandle").is_empty() {
        errors.required(&path.field("volumeHandle"), "");
    }
    let secrets =
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
    for secret in secrets.into_iter().filter(|secret| source.has(secret)) {
        for part in ["name", "namespace"] {
            match source.at(secret).str(part) {
                "" => errors.required(&path.field(secret).field(part), ""),
                text => errors.invalid_all(&path.field(part), text, dns1123_label(text)),
            }
        }
    }
}

/// Whether a cleaned path is the root.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."))
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate(object, errors);
    let (new_spec, old_spec) = (object.at("spec"), old.at("spec"));
    let (new_source, old_source) = (source_of(new_spec, Some(old_spec)), source_of(old_spec, None));
    if new_source != old_source {
        let diff = internal::difference(&old_source, &new_source, "PersistentVolumeSource");
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        errors.forbidden(&Path::root("spec.persistentvolumesource"), &detail);
    }
    validate_immutable(new_spec.at("volumeMode"), old_spec.at("volumeMode"), &Path::root("volumeMode"), errors);
    let (new_affinity, old_affinity) = (new_spec.at("nodeAffinity"), old_spec.at("nodeAffinity"));
    if !old_affinity.is_null() && new_affinity != old_affinity {
        let shown = internal::shown(new_affinity, "VolumeNodeAffinity");
        errors.invalid(&Path::root("nodeAffinity"), shown, "field is immutable");
    }
}

/// The source only. The expansion secrets may be added to a CSI volume later.
fn source_of(spec: &Tree, old: Option<&Tree>) -> Tree {
    let mut source = tree! {};
    for (key, _, _) in SOURCES {
        if let Some(value) = spec.get(key) {
            source.set(key, value.clone());
        }
    }
    let added = |secret: &&str| old.is_some_and(|old| old.has("csi") && !old.at("csi").has(secret));
    for secret in ["controllerExpandSecretRef", "nodeExpandSecretRef"].into_iter().filter(added) {
        if let Some(csi) = source.get_mut("csi") {
            csi.remove(secret);
        }
    }
    source
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let claim = object.at("spec.claimRef");
    let claim =
        if claim.is_null() { String::new() } else { format!("{}/{}", claim.str("namespace"), claim.str("name")) };
    let capacity = object.map("spec.capacity").get("storage").and_then(Tree::as_str).unwrap_or("0");
    vec![
        cells::name(object),
        Tree::from(capacity),
        Tree::from(access_modes(object.list("spec.accessModes"))),
        Tree::from(object.str("spec.persistentVolumeReclaimPolicy")),
        phase(object),
        Tree::from(claim),
        class(object),
        cells::text_or(object, "spec.volumeAttributesClassName", "<unset>"),
        Tree::from(object.str("status.reason")),
        cells::age(object, now),
        cells::text_or(object, "spec.volumeMode", "<unset>"),
    ]
}

/// Sources, their printed names, and their deprecation.
const DEPRECATED_SOURCES: &[(&str, &str, &str)] = &[
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const RECYCLE: &str =
    "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mount_options = "deprecated since v1.31; use \"mountOptions\" attribute instead";
    for (key, text) in [(CLASS_ANNOTATION, CLASS_WARNING), (MOUNT_OPTIONS, mount_options)] {
        if object.map("metadata.annotations").contains(key) {
            warnings.push(format!("metadata.annotations[{key}]: {text}"));
        }
    }
    let spec = object.at("spec");
    if spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {RECYCLE}"));
    }
    let terms = Path::root("spec.nodeAffinity.required.nodeSelectorTerms");
    for (index, term) in spec.list("nodeAffinity.required.nodeSelectorTerms").iter().enumerate() {
        warnings.extend(labels::expression_warnings(term, &terms.index(index)));
    }
    for (_, shown, text) in DEPRECATED_SOURCES.iter().filter(|(key, _, _)| spec.has(key)) {
        warnings.push(format!("spec.{shown}: {text}"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::list;

    #[test]
    fn warns_about_deprecated_fields() {
        let expression = tree! { "key" => "beta.kubernetes.io/os", "operator" => "Exists" };
        let terms = list![tree! { "matchExpressions" => list![expression] }];
        let spec = tree! {
            "persistentVolumeReclaimPolicy" => "Recycle",
            "nodeAffinity" => tree! { "required" => tree! { "nodeSelectorTerms" => terms } },
            "storageos" => tree! {},
        };
        let annotations = tree! { MOUNT_OPTIONS => "ro" };
        let object = tree! { "metadata" => tree! { "annotations" => annotations }, "spec" => spec };
        let want = [
            "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use \"mountOptions\" attribute instead",
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
            "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.storageOS: deprecated in v1.22, non-functional in v1.25+",
        ];
        assert_eq!(warnings(&object, None), want);
    }

    #[test]
    fn requires_one_source() {
        let check = |extra: Tree, want: &[&str]| {
            let mut spec =
                tree! { "capacity" => tree! { "storage" => "1Gi" }, "accessModes" => list!["ReadWriteOnce"] };
            extra.as_map().into_iter().flat_map(|map| map.iter()).for_each(|(key, value)| spec.set(key, value.clone()));
            let mut errors = Errors::new();
            validate(&tree! { "spec" => spec }, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        check(tree! { "hostPath" => tree! { "path" => "/a" } }, &[]);
        check(tree! {}, &["spec: Required value: must specify a volume type"]);
        check(
            tree! { "hostPath" => tree! { "path" => "/a" }, "nfs" => tree! { "server" => "s", "path" => "/" } },
            &["spec.nfs: Forbidden: may not specify more than 1 volume type"],
        );
        check(
            tree! { "local" => tree! { "path" => "/a" } },
            &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
        );
    }
}
