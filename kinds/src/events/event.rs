//! Event.

use crate::kind::{Kind, column, selectable};

pub static KIND: Kind = Kind {
    short_names: &["ev"],
    columns: &[
        column("Last Seen", "string", "", 0),
        column("Type", "string", "", 0),
        column("Reason", "string", "", 0),
        column("Object", "string", "", 0),
        column("Subobject", "string", "", 1),
        column("Source", "string", "", 1),
        column("Message", "string", "", 0),
        column("First Seen", "string", "", 1),
        column("Count", "string", "", 1),
        column("Name", "string", "name", 1),
    ],
    selectable: &[
        selectable("reason"),
        selectable("regarding.kind"),
        selectable("regarding.namespace"),
        selectable("regarding.name"),
        selectable("regarding.uid"),
        selectable("regarding.apiVersion"),
        selectable("regarding.resourceVersion"),
        selectable("regarding.fieldPath"),
        selectable("reportingController"),
        selectable("type"),
    ],
    ..Kind::namespaced("events.k8s.io", "v1", "Event", "events", "event")
};
