//! ResourceSlice.

use crate::kind::{Kind, column, selectable};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Node", "string", "", 0),
        column("Driver", "string", "", 0),
        column("Pool", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    selectable: &[selectable("spec.nodeName"), selectable("spec.driver"), selectable("spec.pool.name")],
    ..Kind::cluster("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", "resourceslice")
};
