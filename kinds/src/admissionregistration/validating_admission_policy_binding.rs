//! ValidatingAdmissionPolicyBinding.

use api::Tree;
use api::field::{Errors, Path};

use super::{policy, rules};
use crate::kind::{Kind, column};
use crate::podspec::small_set::SmallSet;

pub(crate) static KIND: Kind = Kind {
    categories: &["api-extensions"],
    columns: &[
        column("Name", "string", "name", 0),
        column("PolicyName", "string", "", 0),
        column("ParamRef", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults: policy::set_binding_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    warnings: rules::warn_of_reserved_name,
    unconditional_update: false,
    cells: policy::binding_cells,
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
    )
};

const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

fn validate(object: &Tree, errors: &mut Errors) {
    policy::validate_binding(object, errors);
    let actions = object.list("spec.validationActions");
    let path = Path::root("spec.validationActions");
    if actions.is_empty() {
        errors.required(&path, "");
    }
    let mut seen = SmallSet::new();
    for (index, action) in actions.iter().enumerate() {
        let text = action.as_str().unwrap_or("");
        if !ACTIONS.contains(&text) {
            errors.not_supported(&path.index(index), text, ACTIONS);
        }
        if !seen.insert(text) {
            errors.duplicate(&path.index(index), text);
        }
    }
    let has = |wanted: &str| actions.iter().any(|action| action.as_str() == Some(wanted));
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
             API response and headers serves no purpose)";
        errors.invalid(&path, object.at("spec.validationActions"), detail);
    }
}
