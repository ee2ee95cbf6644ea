//! SubjectAccessReview.

use crate::kind::{Kind, Verb};

pub static KIND: Kind = Kind {
    verbs: &[Verb::Create],
    storage: "",
    ..Kind::cluster("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview")
};
