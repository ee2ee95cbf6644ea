//! DeviceTaintRule.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Key", "string", "", 0),
        column("Value", "string", "", 0),
        column("Effect", "string", "", 0),
        column("TimeAdded", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", "devicetaintrule")
};
