//! CSIStorageCapacity.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("StorageClassName", "string", "", 0),
        column("Capacity", "string", "", 0),
    ],
    ..Kind::namespaced("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity")
};
