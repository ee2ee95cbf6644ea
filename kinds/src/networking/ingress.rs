//! Ingress.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["ing"],
    storage: "ingress",
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Class", "string", "", 0),
        column("Hosts", "string", "", 0),
        column("Address", "string", "", 0),
        column("Ports", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress")
};
