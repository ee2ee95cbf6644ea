//! ComponentStatus.

use api::Tree;

use crate::cells;
use crate::kind::{Kind, Lifecycle, Verb, column};

/// ComponentStatus.
pub static KIND: Kind = Kind {
    short_names: &["cs"],
    verbs: &[Verb::Get, Verb::List],
    columns: &[
        column("Name", "string", "name", 0),
        column("Status", "string", "", 0),
        column("Message", "string", "", 0),
        column("Error", "string", "", 0),
    ],
    storage: "",
    cells,
    lifecycle: Lifecycle { deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"), ..Lifecycle::DEFAULT },
    ..Kind::cluster("", "v1", "ComponentStatus", "componentstatuses", "componentstatus")
};

fn cells(object: &Tree, _: i64) -> Vec<Tree> {
    let healthy = object.list("conditions").iter().find(|condition| condition.str("type") == "Healthy");
    let status = match healthy.map(|condition| condition.str("status")) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let text = |field: &str| Tree::from(healthy.map_or("", |condition| condition.str(field)));
    vec![cells::name(object), Tree::from(status), text("message"), text("error")]
}
