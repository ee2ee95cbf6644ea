//! ResourceQuota.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["quota"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Request", "string", "", 0),
        column("Limit", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
};
