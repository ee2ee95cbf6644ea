//! MutatingAdmissionPolicyBinding.

use super::{policy, rules};
use crate::kind::{Kind, column};

pub(crate) static KIND: Kind = Kind {
    categories: &["api-extensions"],
    columns: &[
        column("Name", "string", "name", 0),
        column("PolicyName", "string", "", 0),
        column("ParamRef", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    refused: Some(rules::CEL_MISSING),
    set_defaults: policy::set_binding_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate: policy::validate_binding,
    validate_update: |object, _, errors| policy::validate_binding(object, errors),
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
