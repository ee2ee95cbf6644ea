//! StorageClass.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["sc"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Provisioner", "string", "", 0),
        column("ReclaimPolicy", "string", "", 0),
        column("VolumeBindingMode", "string", "", 0),
        column("AllowVolumeExpansion", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass")
};
