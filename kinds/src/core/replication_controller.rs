//! ReplicationController.

use crate::kind::{Kind, Subresource, Verb, column, selectable};

pub static KIND: Kind = Kind {
    short_names: &["rc"],
    categories: &["all"],
    storage: "controllers",
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
    selectable: &[selectable("status.replicas")],
    ..Kind::namespaced("", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller")
};
