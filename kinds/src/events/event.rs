//! Event of events.k8s.io: the same objects as core events, with newer field names and stricter rules. Stored in the
//! core form.

use api::Tree;
use api::field::{Errors, Path};

use crate::core::event as core_event;
use crate::gojson;
use crate::kind::{Conversion, Kind, Lifecycle, column, selectable};
use crate::meta::validate_immutable;

pub(crate) static KIND: Kind = Kind {
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
    conversion: Some(Conversion { group: "", version: "v1", kind: "Event", to_storage, from_storage }),
    validate,
    validate_update,
    create_on_update: true,
    cells: |object, now| core_event::cells(&to_storage(object.clone()), now),
    lifecycle: Lifecycle { expires: true, is_relaxed: |_, _| true, has_dependents: false, ..Lifecycle::DEFAULT },
    ..Kind::namespaced("events.k8s.io", "v1", "Event", "events", "event")
};

/// Field names here and in the stored form, if they differ.
const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn to_storage(mut object: Tree) -> Tree {
    for (here, stored) in RENAMED {
        rename(&mut object, here, stored);
    }
    object.set("apiVersion", "v1");
    object
}

fn from_storage(mut object: Tree) -> Tree {
    for (here, stored) in RENAMED {
        rename(&mut object, stored, here);
    }
    // The stored form always has these fields; this one omits them if empty.
    for field in ["reportingController", "reportingInstance"] {
        if object.str(field).is_empty() {
            object.remove(field);
        }
    }
    object.set("apiVersion", "events.k8s.io/v1");
    object
}

fn rename(object: &mut Tree, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.set(to, value);
    }
}

/// The rules of the core form first, then those of this version. Paths are those of the core form.
fn validate(object: &Tree, errors: &mut Errors) {
    let stored = to_storage(object.clone());
    core_event::validate(&stored, "reportingController", errors);
    validate_series(&stored, errors);
    if !stored.has("eventTime") {
        errors.required(&Path::root("eventTime"), "");
    }
    let ty = stored.str("type");
    if !matches!(ty, "Normal" | "Warning") {
        errors.invalid(&Path::root("type"), "", &format!("has invalid value: {ty}"));
    }
    for field in ["firstTimestamp", "lastTimestamp"].into_iter().filter(|field| stored.has(field)) {
        errors.invalid(&Path::root(field), "", "needs to be unset");
    }
    if stored.int("count").unwrap_or(0) != 0 {
        errors.invalid(&Path::root("count"), "", "needs to be unset");
    }
    if !stored.str("source.component").is_empty() || !stored.str("source.host").is_empty() {
        errors.invalid(&Path::root("source"), "", "needs to be unset");
    }
}

fn validate_series(stored: &Tree, errors: &mut Errors) {
    if !stored.has("series") {
        return;
    }
    if stored.int("series.count").unwrap_or(0) < 2 {
        errors.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
    if stored.str("series.lastObservedTime").is_empty() {
        errors.required(&Path::root("series.lastObservedTime"), "");
    }
}

/// Only the series of an event may change.
fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let (new, old) = (to_storage(object.clone()), to_storage(old.clone()));
    core_event::validate(&new, "reportingController", errors);
    if new.at("series") != old.at("series") {
        validate_series(&new, errors);
    }
    for (field, shown) in FIXED {
        let path = Path::root(shown);
        match new.get(field) {
            None if old.has(field) => errors.invalid(&path, gojson::null(), "field is immutable"),
            _ => validate_immutable(new.at(field), old.at(field), &path, errors),
        }
    }
}

/// Fields of the stored form and their names in paths.
const FIXED: &[(&str, &str)] = &[
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn forms_are_equivalent() {
        let new = tree! { "apiVersion" => "events.k8s.io/v1", "kind" => "Event", "note" => "n", "regarding" => tree! { "name" => "p" }, "reportingController" => "c" };
        let stored = to_storage(new.clone());
        assert_eq!(stored.str("message"), "n");
        assert_eq!(stored.str("involvedObject.name"), "p");
        assert_eq!(from_storage(stored), new);
    }

    #[test]
    fn new_events_are_complete() {
        let mut errors = Errors::new();
        let object = tree! { "metadata" => tree! { "namespace" => "a" }, "regarding" => tree! { "namespace" => "a" }, "type" => "Bad", "deprecatedCount" => 1 };
        validate(&object, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let want = [
            "eventTime: Required value",
            "type: Invalid value: \"\": has invalid value: Bad",
            "count: Invalid value: \"\": needs to be unset",
        ];
        assert_eq!(texts, want);
    }
}
