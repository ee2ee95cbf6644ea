//! Node.

use crate::kind::{Kind, Subresource, Verb, column, selectable};

pub static KIND: Kind = Kind {
    short_names: &["no"],
    storage: "minions",
    subresources: &[
        Subresource {
            name: "proxy",
            gvk: Some(("", "v1", "NodeProxyOptions")),
            verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Roles", "string", "", 0),
        column("Age", "string", "", 0),
        column("Version", "string", "", 0),
        column("Internal-IP", "string", "", 1),
        column("External-IP", "string", "", 1),
        column("OS-Image", "string", "", 1),
        column("Kernel-Version", "string", "", 1),
        column("Container-Runtime", "string", "", 1),
    ],
    selectable: &[selectable("spec.unschedulable")],
    ..Kind::cluster("", "v1", "Node", "nodes", "node")
};
