//! PersistentVolumeClaim.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["pvc"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Volume", "string", "", 0),
        column("Capacity", "string", "", 0),
        column("Access Modes", "string", "", 0),
        column("StorageClass", "string", "", 0),
        column("VolumeAttributesClass", "string", "", 0),
        column("Age", "string", "", 0),
        column("VolumeMode", "string", "", 1),
    ],
    ..Kind::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
};
