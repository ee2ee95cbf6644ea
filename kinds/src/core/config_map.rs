//! ConfigMap.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["cm"],
    columns: &[column("Name", "string", "name", 0), column("Data", "string", "", 0), column("Age", "string", "", 0)],
    ..Kind::namespaced("", "v1", "ConfigMap", "configmaps", "configmap")
};
