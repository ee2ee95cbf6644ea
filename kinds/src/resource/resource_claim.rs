//! ResourceClaim.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[column("Name", "string", "name", 0), column("State", "string", "", 0), column("Age", "string", "", 0)],
    ..Kind::namespaced("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", "resourceclaim")
};
