//! CSIStorageCapacity.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::dns1123_subdomain;

use crate::kind::{Kind, column};
use crate::meta::validate_immutable;
use crate::podspec::validate_label_selector;
use crate::podspec::warnings::labels;
use crate::{cells, resources};

pub(crate) static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
    validate,
    validate_update,
    warnings,
    unconditional_update: false,
    cells: cells::name_and_created,
    ..Kind::namespaced("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity")
};

fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    let path = Path::root("nodeTopology");
    let mut warnings = labels::expression_warnings(object.at("nodeTopology"), &path);
    let keys = object.map("nodeTopology.matchLabels").keys();
    warnings
        .extend(keys.filter_map(|key| Some(format!("nodeTopology.matchLabels.{key}: {}", labels::deprecation(key)?))));
    warnings
}

fn validate(object: &Tree, errors: &mut Errors) {
    validate_label_selector(object.at("nodeTopology"), &Path::root("nodeTopology"), errors);
    let class = object.str("storageClassName");
    errors.invalid_all(&Path::root("storageClassName"), class, dns1123_subdomain(class));
    for field in ["capacity", "maximumVolumeSize"].into_iter().filter(|field| object.has(field)) {
        resources::validate_quantity("storage", object.at(field), &Path::root(field), errors);
    }
}

/// The topology and class are immutable; the capacity may change.
fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    for field in ["nodeTopology", "storageClassName"] {
        validate_immutable(object.at(field), old.at(field), &Path::root(field), errors);
    }
}
