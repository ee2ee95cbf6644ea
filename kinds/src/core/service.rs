//! Service.

use crate::kind::{Kind, Subresource, Verb, column, selectable};

pub static KIND: Kind = Kind {
    short_names: &["svc"],
    categories: &["all"],
    storage: "services/specs",
    subresources: &[
        Subresource {
            name: "proxy",
            gvk: Some(("", "v1", "ServiceProxyOptions")),
            verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Type", "string", "", 0),
        column("Cluster-IP", "string", "", 0),
        column("External-IP", "string", "", 0),
        column("Port(s)", "string", "", 0),
        column("Age", "string", "", 0),
        column("Selector", "string", "", 1),
    ],
    selectable: &[selectable("spec.clusterIP"), selectable("spec.type")],
    ..Kind::namespaced("", "v1", "Service", "services", "service")
};
