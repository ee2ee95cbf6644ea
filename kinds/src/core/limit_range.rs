//! LimitRange.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["limits"],
    columns: &[column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
    ..Kind::namespaced("", "v1", "LimitRange", "limitranges", "limitrange")
};
