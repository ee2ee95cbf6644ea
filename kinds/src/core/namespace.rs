//! Namespace.

use crate::kind::{Kind, Subresource, Verb, column, selectable};

pub static KIND: Kind = Kind {
    short_names: &["ns"],
    verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
    subresources: &[
        Subresource { name: "finalize", gvk: None, verbs: &[Verb::Update] },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[column("Name", "string", "name", 0), column("Status", "string", "", 0), column("Age", "string", "", 0)],
    selectable: &[selectable("status.phase")],
    ..Kind::cluster("", "v1", "Namespace", "namespaces", "namespace")
};
