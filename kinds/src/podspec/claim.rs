//! Claims for volumes, as pods hold them in templates.

use api::Tree;
use api::field::{Errors, Path};

use super::{check, resources, selector};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Judges a PersistentVolumeClaimSpec.
pub fn validate_spec(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    validate_access_modes(spec, &path.field("accessModes"), errors);
    selector::validate_label_selector(spec.at("selector"), &path.field("selector"), errors);
    let storage = path.field("resources");
    match spec.map("resources.requests").get("storage") {
        None => errors.required(&storage.field("requests").key("storage"), ""),
        Some(value) => {
            let at = storage.field("requests");
            resources::validate_quantity("storage", value, &at.key("storage"), errors);
            crate::resources::validate_positive(value, &at.key("storage"), errors);
        }
    }
    for key in ["storageClassName", "volumeAttributesClassName"] {
        let name = spec.str(key);
        if !name.is_empty() {
            check::dns_subdomain(name, &path.field(key), errors);
        }
    }
    check::one_of(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
}

fn validate_access_modes(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        errors.required(path, "at least 1 access mode is required");
    }
    for mode in modes.iter().filter_map(Tree::as_str).filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(path, mode, ACCESS_MODES);
    }
    let single = modes.iter().any(|mode| mode.as_str() == Some("ReadWriteOncePod"));
    if single && modes.iter().any(|mode| mode.as_str() != Some("ReadWriteOncePod")) {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}
