//! CustomResourceDefinition.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Scope", "string", "", 0),
        column("Versions", "string", "", 0),
        column("Created At", "date", "", 0),
        column("Group", "string", "", 1),
        column("Kind", "string", "", 1),
        column("ShortNames", "string", "", 1),
        column("Established", "boolean", "", 1),
    ],
    ..Kind::cluster(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "customresourcedefinition",
    )
};
