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
        selectable("involvedObject.kind"),
        selectable("involvedObject.namespace"),
        selectable("involvedObject.name"),
        selectable("involvedObject.uid"),
        selectable("involvedObject.apiVersion"),
        selectable("involvedObject.resourceVersion"),
        selectable("involvedObject.fieldPath"),
        selectable("reason"),
        selectable("reportingComponent"),
        selectable("source"),
        selectable("type"),
    ],
    ..Kind::namespaced("", "v1", "Event", "events", "event")
};
