//! SelfSubjectRulesReview.

use crate::kind::{Kind, Verb};

pub(crate) static KIND: Kind = Kind {
    verbs: &[Verb::Create],
    storage: "",
    ..Kind::cluster(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
    )
};
