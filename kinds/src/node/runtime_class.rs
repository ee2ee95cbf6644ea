//! RuntimeClass.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("Handler", "string", "", 0), column("Age", "string", "", 0)],
    ..Kind::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
};
