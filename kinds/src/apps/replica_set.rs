//! ReplicaSet.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[
        Subresource {
            name: "scale",
            gvk: Some(("autoscaling", "v1", "Scale")),
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Desired", "integer", "", 0),
        column("Current", "integer", "", 0),
        column("Ready", "integer", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    ..Kind::namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
};
