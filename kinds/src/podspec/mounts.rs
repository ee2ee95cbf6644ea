//! Volume mounts and block devices of a container.

use api::Tree;
use api::field::{Errors, Path};

use super::check;
use super::spec::Scope;

pub fn validate(container: &Tree, scope: &Scope<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mounts = path.field("volumeMounts");
    for index in 0..container.list("volumeMounts").len() {
        validate_mount(container, index, scope, &mounts, errors);
    }
    let devices = path.field("volumeDevices");
    for index in 0..container.list("volumeDevices").len() {
        validate_device(container, index, scope, &devices, errors);
    }
}

/// Judges one mount against those before it. Some errors are at the whole list, as upstream has them.
fn validate_mount(container: &Tree, index: usize, scope: &Scope<'_>, list: &Path<'_>, errors: &mut Errors) {
    let mounts = container.list("volumeMounts");
    let devices = container.list("volumeDevices");
    let mount = &mounts[index];
    let path = list.index(index);
    let (name, mount_path) = (mount.str("name"), mount.str("mountPath"));
    check::required(mount, "name", &path, errors);
    let volume = scope.volume(name);
    if volume.is_none() {
        errors.not_found(&path.field("name"), name);
    }
    check::required(mount, "mountPath", &path, errors);
    if mounts[..index].iter().any(|other| other.str("mountPath") == mount_path) {
        errors.invalid(&path.field("mountPath"), mount_path, "must be unique");
    }
    if devices.iter().any(|device| device.str("name") == name) {
        errors.invalid(&path.field("name"), name, "must not already exist in volumeDevices");
    }
    if devices.iter().any(|device| device.str("devicePath") == mount_path) {
        errors.invalid(&path.field("mountPath"), mount_path, "must not already exist as a path in volumeDevices");
    }
    validate_sub_path(mount, list, &path, errors);
    if let Some(propagation) = mount.get("mountPropagation").and_then(Tree::as_str) {
        validate_propagation(propagation, container, &list.field("mountPropagation"), errors);
    }
    validate_recursive_read_only(mount, &list.field("recursiveReadOnly"), errors);
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

fn validate_device(container: &Tree, index: usize, scope: &Scope<'_>, list: &Path<'_>, errors: &mut Errors) {
    let mounts = container.list("volumeMounts");
    let devices = container.list("volumeDevices");
    let device = &devices[index];
    let path = list.index(index);
    let (name, device_path) = (device.str("name"), device.str("devicePath"));
    check::required(device, "name", &path, errors);
    if !name.is_empty() && devices[..index].iter().any(|other| other.str("name") == name) {
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
    check::required(device, "devicePath", &path, errors);
    if devices[..index].iter().any(|other| other.str("devicePath") == device_path) {
        errors.invalid(&path.field("devicePath"), device_path, "must be unique");
    }
    if device_path.split('/').any(|part| part == "..") {
        errors.invalid(&path.field("devicePath"), device_path, "can not contain backsteps ('..')");
    }
    if mounts.iter().any(|mount| mount.str("name") == name) {
        errors.invalid(&path.field("name"), name, "must not already exist in volumeMounts");
    }
    if mounts.iter().any(|mount| mount.str("mountPath") == device_path) {
        errors.invalid(&path.field("devicePath"), device_path, "must not already exist as a path in volumeMounts");
    }
}
