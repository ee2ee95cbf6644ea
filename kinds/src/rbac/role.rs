//! Role.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
    ..Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles", "role")
};
