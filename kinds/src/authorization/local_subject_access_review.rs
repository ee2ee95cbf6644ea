//! LocalSubjectAccessReview.

use super::rules;
use crate::kind::{Kind, Verb};

pub(crate) static KIND: Kind = Kind {
    verbs: &[Verb::Create],
    storage: "",
    validate: |object, errors| {
        rules::validate_attributes(object, errors);
        rules::validate_subject(object, errors);
        rules::validate_local(object, errors);
    },
    ..Kind::namespaced(
        "authorization.k8s.io",
        "v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
    )
};
