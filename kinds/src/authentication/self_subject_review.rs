//! SelfSubjectReview.

use crate::kind::{Kind, Verb};

pub(crate) static KIND: Kind = Kind {
    verbs: &[Verb::Create],
    storage: "",
    ..Kind::cluster("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview")
};
