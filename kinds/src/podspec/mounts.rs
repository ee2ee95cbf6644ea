//! Volume mounts and block devices of a container.

use api::Tree;
use api::field::{Errors, Path};

use super::check;
use super::small_set::SmallSet;
use super::spec::PodContext;

pub(super) fn validate(container: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (mounts, devices) = (container.list("volumeMounts"), container.list("volumeDevices"));
    let taken = UsedNames::of(devices, "devicePath");
    let mut seen = SmallSet::new();
    let list = path.field("volumeMounts");
    for (index, mount) in mounts.iter().enumerate() {
        let unique = seen.insert(mount.str("mountPath"));
        validate_names(mount, scope, &list.index(index), errors);
        validate_mount_is_alone(mount, unique, &taken, &list.index(index), errors);
        validate_options(mount, container, &list, index, errors);
    }
    let taken = UsedNames::of(if devices.is_empty() { &[] } else { mounts }, "mountPath");
    let mut seen = UsedNames::of(&[], "devicePath");
    let list = path.field("volumeDevices");
    for (index, device) in devices.iter().enumerate() {
        validate_device(device, scope, &mut seen, &list.index(index), errors);
        validate_device_is_alone(device, &taken, &list.index(index), errors);
    }
}

/// Names and paths in use.
struct UsedNames<'a> {
    names: SmallSet<&'a str>,
    paths: SmallSet<&'a str>,
}

impl<'a> UsedNames<'a> {
    fn of(list: &'a [Tree], key: &str) -> UsedNames<'a> {
        UsedNames {
            names: list.iter().map(|one| one.str("name")).collect(),
            paths: list.iter().map(|one| one.get(key).and_then(Tree::as_str).unwrap_or("")).collect(),
        }
    }
}

fn validate_names(mount: &Tree, scope: &PodContext<'_>, path: &Path<'_>, errors: &mut Errors) {
    check::required(mount, "name", path, errors);
    if scope.volume(mount.str("name")).is_none() {
        errors.not_found(&path.field("name"), mount.str("name"));
    }
    check::required(mount, "mountPath", path, errors);
}

/// Most of these errors have the path of the whole list, as in upstream.
fn validate_options(mount: &Tree, container: &Tree, list: &Path<'_>, index: usize, errors: &mut Errors) {
    validate_sub_path(mount, list, &list.index(index), errors);
    if let Some(propagation) = mount.get("mountPropagation").and_then(Tree::as_str) {
        validate_propagation(propagation, container, &list.field("mountPropagation"), errors);
    }
    validate_recursive_read_only(mount, &list.field("recursiveReadOnly"), errors);
}

fn validate_mount_is_alone(mount: &Tree, unique: bool, taken: &UsedNames<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (name, mount_path) = (mount.str("name"), mount.str("mountPath"));
    if !unique {
        errors.invalid(&path.field("mountPath"), mount_path, "must be unique");
    }
    if taken.names.contains(&name) {
        errors.invalid(&path.field("name"), name, "must not already exist in volumeDevices");
    }
    if taken.paths.contains(&mount_path) {
        errors.invalid(&path.field("mountPath"), mount_path, "must not already exist as a path in volumeDevices");
    }
}

fn validate_sub_path(mount: &Tree, list: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (sub_path, expression) = (mount.str("subPath"), mount.str("subPathExpr"));
    if !sub_path.is_empty() {
        check::local_descending(sub_path, &list.field("subPath"), errors);
    }
    if !expression.is_empty() {
        if !sub_path.is_empty() {
            errors.invalid(&path.field("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
        }
        check::local_descending(expression, &list.field("subPathExpr"), errors);
    }
}

const PROPAGATIONS: &[&str] = &["Bidirectional", "HostToContainer", "None"];

fn validate_propagation(propagation: &str, container: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if !PROPAGATIONS.contains(&propagation) {
        errors.not_supported(path, propagation, PROPAGATIONS);
    }
    if propagation == "Bidirectional" && !container.bool("securityContext.privileged") {
        errors.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn validate_recursive_read_only(mount: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match mount.str("recursiveReadOnly") {
        "" | "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.bool("readOnly") {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if !matches!(mount.str("mountPropagation"), "" | "None") {
                errors.forbidden(path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        value => errors.not_supported(path, value, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn validate_device<'a>(
    device: &'a Tree,
    scope: &PodContext<'_>,
    seen: &mut UsedNames<'a>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (name, device_path) = (device.str("name"), device.str("devicePath"));
    check::required(device, "name", path, errors);
    if !name.is_empty() && !seen.names.insert(name) {
        errors.invalid(&path.field("name"), name, "must be unique");
    }
    match scope.volume(name) {
        None => errors.not_found(&path.field("name"), name),
        Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => errors.invalid(
            &path.field("name"),
            name,
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
        ),
        Some(_) => {}
    }
    check::required(device, "devicePath", path, errors);
    if !seen.paths.insert(device_path) {
        errors.invalid(&path.field("devicePath"), device_path, "must be unique");
    }
    if device_path.split('/').any(|part| part == "..") {
        errors.invalid(&path.field("devicePath"), device_path, "can not contain backsteps ('..')");
    }
}

fn validate_device_is_alone(device: &Tree, taken: &UsedNames<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (name, device_path) = (device.str("name"), device.str("devicePath"));
    if taken.names.contains(&name) {
        errors.invalid(&path.field("name"), name, "must not already exist in volumeMounts");
    }
    if taken.paths.contains(&device_path) {
        errors.invalid(&path.field("devicePath"), device_path, "must not already exist as a path in volumeMounts");
    }
}
