//! CSIDriver.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("AttachRequired", "boolean", "", 0),
        column("PodInfoOnMount", "boolean", "", 0),
        column("StorageCapacity", "boolean", "", 0),
        column("TokenRequests", "string", "", 0),
        column("RequiresRepublish", "boolean", "", 0),
        column("Modes", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "csidriver")
};
