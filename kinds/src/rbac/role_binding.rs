//! RoleBinding.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Role", "string", "", 0),
        column("Age", "string", "", 0),
        column("Users", "string", "", 1),
        column("Groups", "string", "", 1),
        column("ServiceAccounts", "string", "", 1),
    ],
    ..Kind::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "rolebinding")
};
