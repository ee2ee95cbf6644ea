//! PodTemplate.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Containers", "string", "", 0),
        column("Images", "string", "", 0),
        column("Pod Labels", "string", "", 0),
    ],
    ..Kind::namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate")
};
