//! ServiceAccount.

use crate::kind::{Kind, Subresource, Verb};

pub static KIND: Kind = Kind {
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        gvk: Some(("authentication.k8s.io", "v1", "TokenRequest")),
        verbs: &[Verb::Create],
    }],
    ..Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount")
};
