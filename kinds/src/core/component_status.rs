//! ComponentStatus.

use crate::kind::{Kind, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["cs"],
    verbs: &[Verb::Get, Verb::List],
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Message", "string", "", 0),
        column("Error", "string", "", 0),
    ],
    ..Kind::cluster("", "v1", "ComponentStatus", "componentstatuses", "componentstatus")
};
