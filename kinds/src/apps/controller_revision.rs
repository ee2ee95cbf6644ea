//! ControllerRevision.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Controller", "string", "", 0),
        column("Revision", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision")
};
