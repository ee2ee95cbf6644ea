//! DeviceClass.

use api::Tree;
use api::field::{Errors, Path};

use super::rules::{MAX_CONFIGS, validate_configuration, validate_items};
use super::selectors;
use crate::kind::{Kind, Lifecycle, bump_generation};
use crate::{prepare, resources};

pub(crate) static KIND: Kind = Kind {
    prepare_create: |object, _| prepare::first_generation(object),
    prepare_update: |object, old, _| bump_generation(object, old, &["spec"]),
    validate: |object, errors| validate(object, None, errors),
    validate_update: |object, old, errors| validate(object, Some(old), errors),
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "deviceclass")
};

fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let path = Path::root("spec");
    let stored = old.map(|old| old.list("spec.selectors"));
    selectors::validate(object.list("spec.selectors"), stored, &path.field("selectors"), errors);
    validate_items(object.list("spec.config"), MAX_CONFIGS, &path.field("config"), errors, validate_configuration);
    let name = object.at("spec.extendedResourceName").as_str();
    if let Some(name) = name.filter(|name| !resources::is_extended(name)) {
        errors.invalid(&path.field("extendedResourceName"), name, "must be a valid extended resource name");
    }
}
