//! Secret.

use crate::kind::{Kind, column, selectable};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Type", "string", "", 0),
        column("Data", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    selectable: &[selectable("type")],
    ..Kind::namespaced("", "v1", "Secret", "secrets", "secret")
};
