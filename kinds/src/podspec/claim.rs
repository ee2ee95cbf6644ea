//! The spec of a PersistentVolumeClaim, in a claim, a StatefulSet or an ephemeral volume.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::dns1123_subdomain;

use super::validate_label_selector;
use super::warnings::fraction;
use crate::resources;

pub(crate) const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(crate) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

/// The defaults of a claim's spec, in a claim or in a template for claims.
pub(crate) fn set_spec_defaults(spec: &mut Tree) {
    spec.set_default("volumeMode", "Filesystem");
    if let Some(requirements) = spec.get_mut("resources") {
        resources::round_up(requirements, "requests");
        resources::round_up(requirements, "limits");
    }
}

/// Validates the spec of a claim, in a claim or in a template.
pub(crate) fn validate_spec(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        errors.required(&path.field("accessModes"), "at least 1 access mode is required");
    }
    validate_label_selector(spec.at("selector"), &path.field("selector"), errors);
    validate_access_modes(modes, &path.field("accessModes"), errors);
    validate_size(spec, &path.field("resources"), errors);
    validate_class(spec.str("storageClassName"), &path.field("storageClassName"), errors);
    let mode = spec.str("volumeMode");
    if !mode.is_empty() && !VOLUME_MODES.contains(&mode) {
        errors.not_supported(&path.field("volumeMode"), mode, VOLUME_MODES);
    }
    for field in ["dataSource", "dataSourceRef"].into_iter().filter(|field| spec.has(field)) {
        validate_source(spec.at(field), &path.field(field), errors);
    }
    if spec.has("dataSource") && spec.has("dataSourceRef") && !same_source(spec) {
        errors.invalid(path, path.field("dataSource").to_string(), "must match dataSourceRef");
    }
    let class = spec.str("volumeAttributesClassName");
    validate_class(class, &path.field("volumeAttributesClassName"), errors);
}

/// Warnings for the spec of a claim, in a claim or in a template for claims.
pub(crate) fn spec_warnings(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let path = path.field("resources");
    for list in ["requests", "limits"] {
        fraction(spec.at("resources").at(list), "storage", &path.field(list), &mut warnings);
    }
    warnings
}

/// Known modes; ReadWriteOncePod only alone.
pub(crate) fn validate_access_modes(modes: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    for mode in modes.iter().filter_map(Tree::as_str).filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(path, mode, ACCESS_MODES);
    }
    let single = |mode: &Tree| mode.as_str() == Some("ReadWriteOncePod");
    if modes.iter().any(single) && !modes.iter().all(single) {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn validate_size(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match spec.map("resources.requests").get("storage") {
        None => errors.required(&path.key("storage"), ""),
        Some(size) => resources::validate_positive(size, &path.key("storage"), errors),
    }
}

pub(crate) fn validate_class(class: &str, path: &Path<'_>, errors: &mut Errors) {
    if !class.is_empty() {
        errors.invalid_all(path, class, dns1123_subdomain(class));
    }
}

fn validate_source(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (group, kind) = (source.str("apiGroup"), source.str("kind"));
    for field in ["name", "kind"] {
        if source.str(field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() {
        errors.invalid_all(&path.field("apiGroup"), group, dns1123_subdomain(group));
    }
}

fn same_source(spec: &Tree) -> bool {
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    ["apiGroup", "kind", "name"].iter().all(|field| source.str(field) == reference.str(field))
}
