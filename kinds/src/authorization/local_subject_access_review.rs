//! LocalSubjectAccessReview.

use crate::kind::{Kind, Verb};

pub static KIND: Kind = Kind {
    verbs: &[Verb::Create],
    storage: "",
    ..Kind::namespaced(
        "authorization.k8s.io",
        "v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
    )
};
