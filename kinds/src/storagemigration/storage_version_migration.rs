//! StorageVersionMigration.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[column("Name", "string", "", 0), column("Resource", "string", "", 0), column("Status", "string", "", 0)],
    ..Kind::cluster(
        "storagemigration.k8s.io",
        "v1",
        "StorageVersionMigration",
        "storageversionmigrations",
        "storageversionmigration",
    )
};
