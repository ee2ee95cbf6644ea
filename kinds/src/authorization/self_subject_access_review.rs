//! SelfSubjectAccessReview.

use super::rules;
use crate::kind::{Kind, Verb};

pub(crate) static KIND: Kind = Kind {
    verbs: &[Verb::Create],
    storage: "",
    validate: |object, errors| {
        rules::validate_attributes(object, errors);
        rules::validate_empty_meta(object, errors);
    },
    ..Kind::cluster(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
    )
};
