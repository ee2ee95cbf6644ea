//! Role.

use super::rules;
use crate::kind::{Kind, column};
use crate::{cells, names};

pub(crate) static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
    validate_name: names::path_segment,
    validate: |object, errors| rules::validate_rules(object, true, errors),
    validate_update: |object, _, errors| rules::validate_rules(object, true, errors),
    create_on_update: true,
    cells: cells::name_and_created,
    ..Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles", "role")
};
