//! VolumeAttributesClass.

use api::Tree;
use api::field::{Errors, Path};

use super::rules::validate_parameters;
use crate::cells;
use crate::checks::validate_driver_name;
use crate::kind::{Kind, Lifecycle, column};

pub(crate) static KIND: Kind = Kind {
    short_names: &["vac"],
    columns: &[
        column("Name", "string", "name", 0),
        column("DriverName", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    validate,
    validate_update,
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
};

fn validate(object: &Tree, errors: &mut Errors) {
    validate_driver_name(object.str("driverName"), &Path::root("driverName"), errors);
    let (parameters, path) = (object.map("parameters"), Path::root("parameters"));
    if parameters.is_empty() {
        errors.required(&path, "must contain at least one key/value pair");
    }
    validate_parameters(parameters, &path, errors);
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    for field in ["driverName", "parameters"] {
        if object.at(field) != old.at(field) {
            errors.forbidden(&Path::root(field), &format!("updates to {field} are forbidden."));
        }
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![cells::name(object), Tree::from(object.str("driverName")), cells::age(object, now)]
}
