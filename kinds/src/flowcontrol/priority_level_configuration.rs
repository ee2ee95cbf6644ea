//! PriorityLevelConfiguration.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Type", "string", "", 0),
        column("NominalConcurrencyShares", "string", "", 0),
        column("Queues", "string", "", 0),
        column("HandSize", "string", "", 0),
        column("QueueLengthLimit", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        "prioritylevelconfiguration",
    )
};
