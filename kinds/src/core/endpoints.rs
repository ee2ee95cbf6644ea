//! Endpoints.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["ep"],
    storage: "services/endpoints",
    columns: &[
        column("Name", "string", "name", 0),
        column("Endpoints", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("", "v1", "Endpoints", "endpoints", "endpoints")
};
