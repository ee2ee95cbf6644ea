//! APIService.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    categories: &["api-extensions"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Service", "string", "", 0),
        column("Available", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices", "apiservice")
};
