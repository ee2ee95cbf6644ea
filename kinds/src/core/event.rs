//! Event.

use api::field::{Errors, Path};
use api::validation::qualified_name;
use api::{Str, Tree};

use crate::kind::{Kind, Lifecycle, Selectable, column, scalar_at, selectable};
use crate::{cells, names};

/// Event.
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
        Selectable { name: "source", get: source },
        selectable("type"),
    ],
    // Upstream validates the names of old events no further.
    validate_name: names::path_segment,
    metadata_last: true,
    validate: |object, errors| validate(object, "reportingComponent", errors),
    validate_update: |object, _, errors| validate(object, "reportingComponent", errors),
    create_on_update: true,
    cells,
    lifecycle: Lifecycle { expires: true, is_relaxed: |_, _| true, has_dependents: false, ..Lifecycle::DEFAULT },
    ..Kind::namespaced("", "v1", "Event", "events", "event")
};

/// The source component of an event, or its reporting component.
fn source(object: &Tree, _: &'static str) -> Str {
    match object.str("source.component") {
        "" => scalar_at(object, "reportingComponent"),
        component => Str::new(component),
    }
}

/// An event without eventTime is of the old form, and only its namespace is validated. `controller` is the name of
/// the reporting controller's field in the requested API group.
pub(crate) fn validate(object: &Tree, controller: &str, errors: &mut Errors) {
    let namespace = object.str("metadata.namespace");
    let path = Path::root("involvedObject.namespace");
    let involved = object.str("involvedObject.namespace");
    let agrees = match (object.has("eventTime"), involved) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, involved) => namespace == involved,
        (true, involved) => !involved.is_empty() || matches!(namespace, "default" | "kube-system"),
    };
    if !agrees {
        errors.invalid(&path, involved, "does not match event.namespace");
    }
    if object.has("eventTime") {
        validate_reporter(object, &Path::root(controller), errors);
    }
}

fn validate_reporter(object: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let controller = object.str("reportingComponent");
    if controller.is_empty() {
        errors.required(path, "");
    }
    errors.invalid_all(path, controller, qualified_name(controller));
    for field in ["reportingInstance", "action", "reason"] {
        let text = object.str(field);
        if text.is_empty() {
            errors.required(&Path::root(field), "");
        }
        validate_length(text, 128, &Path::root(field), errors);
    }
    validate_length(object.str("message"), 1024, &Path::root("message"), errors);
}

fn validate_length(text: &str, max: usize, path: &Path<'_>, errors: &mut Errors) {
    if text.len() > max {
        errors.invalid(path, "", &format!("can have at most {max} characters"));
    }
}

pub(crate) fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let time = |path: &str, other: Tree| match object.str(path) {
        "" => other,
        text => cells::since(text, now),
    };
    let first = time("firstTimestamp", cells::since(object.str("eventTime"), now));
    let mut last = time("lastTimestamp", first.clone());
    // The first event is not included in the count of its series.
    let mut count = object.int("count").filter(|count| *count != 0).unwrap_or(1);
    if object.has("series") {
        last = cells::since(object.str("series.lastObservedTime"), now);
        count = object.int("series.count").unwrap_or(0) + 1;
    }
    vec![
        last,
        Tree::from(object.str("type")),
        Tree::from(object.str("reason")),
        Tree::from(target(object)),
        Tree::from(object.str("involvedObject.fieldPath")),
        Tree::from(source_text(object)),
        Tree::from(object.str("message").trim()),
        first,
        Tree::Int(count),
        cells::name(object),
    ]
}

fn target(object: &Tree) -> String {
    let kind = object.str("involvedObject.kind").to_lowercase();
    match object.str("involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source_text(object: &Tree) -> String {
    let pick = |old: &str, new: &str| match object.str(old) {
        "" => object.str(new).to_string(),
        text => text.to_string(),
    };
    let (component, instance) =
        (pick("source.component", "reportingComponent"), pick("source.host", "reportingInstance"));
    if instance.is_empty() { component } else { format!("{component}, {instance}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn events_are_in_the_namespace_of_their_object() {
        let check = |namespace: &str, involved: &str, want: usize| {
            let mut errors = Errors::new();
            let object = tree! { "metadata" => tree! { "namespace" => namespace }, "involvedObject" => tree! { "namespace" => involved } };
            validate(&object, "reportingComponent", &mut errors);
            assert_eq!(errors.len(), want, "{namespace} {involved}");
        };
        check("a", "a", 0);
        check("a", "b", 1);
        check("default", "", 0);
        check("a", "", 1);
    }

    #[test]
    fn event_metadata_is_validated_last() {
        let check = |involved: &str, want: &str| {
            let metadata = tree! { "namespace" => "a" };
            let object = tree! { "metadata" => metadata, "involvedObject" => tree! { "namespace" => involved } };
            let mut errors = Errors::new();
            KIND.validate_create(&object, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), want);
        };
        check("a", "metadata.name: Required value: name or generateName is required");
        check("b", "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace");
    }

    #[test]
    fn reporter_field_depends_on_the_version() {
        let metadata = tree! { "name" => "e", "namespace" => "default" };
        let object = tree! {
            "metadata" => metadata, "eventTime" => "2024-01-01T00:00:00.000000Z",
            "reportingInstance" => "i", "action" => "a", "reason" => "r",
        };
        let mut errors = Errors::new();
        KIND.validate_create(&object, &mut errors);
        assert_eq!(errors.iter().next().map(|error| error.field.as_str()), Some("reportingComponent"));
    }
}
