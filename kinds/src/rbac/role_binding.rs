//! RoleBinding.

use super::rules;
use crate::kind::{Kind, column};
use crate::names;

pub(crate) static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Role", "string", "", 0),
        column("Age", "string", "", 0),
        column("Users", "string", "", 1),
        column("Groups", "string", "", 1),
        column("ServiceAccounts", "string", "", 1),
    ],
    validate_name: names::path_segment,
    set_defaults: rules::set_binding_defaults,
    validate: |object, errors| rules::validate_binding(object, true, errors),
    validate_update: |object, old, errors| rules::validate_binding_update(object, old, true, errors),
    create_on_update: true,
    cells: rules::binding_cells,
    ..Kind::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "rolebinding")
};
