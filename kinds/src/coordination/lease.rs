//! Lease.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Holder", "string", "", 0), column("Age", "string", "", 0)],
    ..Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease")
};
