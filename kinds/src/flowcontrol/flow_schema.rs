//! FlowSchema.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("PriorityLevel", "string", "", 0),
        column("MatchingPrecedence", "string", "", 0),
        column("DistinguisherMethod", "string", "", 0),
        column("Age", "string", "", 0),
        column("MissingPL", "string", "", 0),
    ],
    ..Kind::cluster("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", "flowschema")
};
