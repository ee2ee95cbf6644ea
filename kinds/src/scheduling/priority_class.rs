//! PriorityClass.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["pc"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Value", "integer", "", 0),
        column("Global-Default", "boolean", "", 0),
        column("Age", "string", "", 0),
        column("PreemptionPolicy", "string", "", 0),
    ],
    ..Kind::cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass")
};
