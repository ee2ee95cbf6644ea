//! Volume sources provided by the node, and claims.

use api::Tree;
use api::field::{Errors, Path};

use crate::podspec::{check, claim, env, resources, selector};

pub(crate) fn empty_dir(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if source.has("sizeLimit") && resources::read(source.at("sizeLimit")).is_negative() {
        errors.forbidden(&path.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

pub(crate) fn host_path(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let host = source.str("path");
    if host.is_empty() {
        return errors.required(&path.field("path"), "");
    }
    check::no_backsteps(host, &path.field("path"), errors);
    check::one_of(source, "type", HOST_PATH_TYPES, path, errors);
}

pub(crate) fn git_repo(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "repository", path, errors);
    check::local_descending(source.str("directory"), &path.field("directory"), errors);
}

pub(crate) fn secret(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "secretName", path, errors);
    mode_and_items(source, path, errors);
}

pub(crate) fn config_map(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "name", path, errors);
    mode_and_items(source, path, errors);
}

fn mode_and_items(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::file_mode(source, "defaultMode", path, errors);
    let items = path.field("items");
    for (index, item) in source.list("items").iter().enumerate() {
        key_to_path(item, &items.index(index), errors);
    }
}

pub(crate) fn key_to_path(item: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_all(item, &["key", "path"], path, errors);
    check::local_non_reserved(item.str("path"), &path.field("path"), errors);
    check::file_mode(item, "mode", path, errors);
}

/// Errors of files have the path of the source, without an index, as in upstream.
pub(crate) fn downward_api(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::file_mode(source, "defaultMode", path, errors);
    for file in source.list("items") {
        downward_api_file(file, path, errors);
    }
}

pub(crate) fn downward_api_file(file: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(file, "path", path, errors);
    check::local_non_reserved(file.str("path"), &path.field("path"), errors);
    match (file.get("fieldRef"), file.get("resourceFieldRef")) {
        (Some(field), resource) => {
            env::validate_field_ref(field, env::VOLUME_FIELDS, &path.field("fieldRef"), errors);
            if resource.is_some() {
                errors.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (None, Some(resource)) => {
            env::validate_resource_field_ref(resource, true, &path.field("resourceFieldRef"), errors);
        }
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    check::file_mode(file, "mode", path, errors);
}

pub(crate) fn persistent_volume_claim(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "claimName", path, errors);
}

pub(crate) fn image(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_one_of(source, "pullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
}

pub(crate) fn ephemeral(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("volumeClaimTemplate");
    match source.get("volumeClaimTemplate") {
        None => errors.required(&path, ""),
        Some(template) => validate_claim_template(template, &path, errors),
    }
}

/// Metadata fields besides labels and annotations, in the order of the type.
const OTHER_METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The metadata of a claim template may only have labels and annotations.
fn validate_claim_template(template: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let meta = path.field("metadata");
    let metadata = template.at("metadata");
    crate::meta::validate_annotations(metadata.map("annotations"), &meta.field("annotations"), errors);
    selector::validate_labels(metadata.map("labels"), &meta.field("labels"), errors);
    for key in OTHER_METADATA {
        if metadata.has(key) {
            errors.forbidden(&meta.field(key), "cannot be set");
        }
    }
    claim::validate_spec(template.at("spec"), &path.field("spec"), errors);
}
