//! ResourceClaimTemplate.

use crate::kind::Kind;

pub static KIND: Kind = Kind {
    ..Kind::namespaced(
        "resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        "resourceclaimtemplate",
    )
};
