//! DaemonSet.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Desired", "integer", "", 0),
        column("Current", "integer", "", 0),
        column("Ready", "integer", "", 0),
        column("Up-to-date", "integer", "", 0),
        column("Available", "integer", "", 0),
        column("Node Selector", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    ..Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets", "daemonset")
};
