//! ValidatingAdmissionPolicy.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    categories: &["api-extensions"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Validations", "integer", "", 0),
        column("ParamKind", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
    )
};
