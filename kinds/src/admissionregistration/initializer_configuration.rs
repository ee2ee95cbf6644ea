//! InitializerConfiguration of old Kubernetes: which initializers new objects wait for.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::fully_qualified_name;

use super::rules;
use crate::kind::Kind;
use crate::podspec::small_set::SmallSet;

pub(crate) static KIND: Kind = Kind {
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    unconditional_update: false,
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1alpha1",
        "InitializerConfiguration",
        "initializerconfigurations",
        "initializerconfiguration",
    )
};

fn validate(object: &Tree, errors: &mut Errors) {
    let path = Path::root("initializers");
    let mut seen = SmallSet::new();
    for (index, initializer) in object.list("initializers").iter().enumerate() {
        let (path, name) = (path.index(index), initializer.str("name"));
        match name {
            "" => errors.required(&path.field("name"), ""),
            name => errors.invalid_all(&path.field("name"), name, fully_qualified_name(name)),
        }
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        for (index, rule) in initializer.list("rules").iter().enumerate() {
            rules::validate_plain_rule(rule, &path.field("rules").index(index), errors);
        }
    }
}
