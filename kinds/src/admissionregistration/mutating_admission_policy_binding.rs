//! MutatingAdmissionPolicyBinding.

use api::Tree;
use api::field::Errors;

use super::{mutating_admission_policy, policy, rules};
use crate::kind::{Kind, column};

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
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
    )
};

fn validate(object: &Tree, errors: &mut Errors) {
    policy::validate_binding(object, errors);
    mutating_admission_policy::validate_operations(object.at("spec.matchResources"), "spec.matchResources", errors);
}
