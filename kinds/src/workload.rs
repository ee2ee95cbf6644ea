//! Shared by workload kinds: selector, template, and their consistency.

use api::field::{Errors, Path, Value};
use api::selector::Selector;
use api::{Tree, validation};

use crate::kind::{Context, Kind};
use crate::{cells, checks};
use crate::{podspec, strategy};

pub(crate) const SPEC: Path<'static> = Path::root("spec");
const NO_MATCH: &str = "`selector` does not match template `labels`";

pub(crate) fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    drop_disabled(object, &Tree::Null);
    strategy::create(object, context);
}

pub(crate) fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    drop_disabled(object, old);
    strategy::update(object, old, context);
}

pub(crate) fn drop_disabled(object: &mut Tree, old: &Tree) {
    if let Some(template) = object.at_mut("spec.template") {
        podspec::drop_disabled_template(template, old.at("spec.template"));
    }
}

/// The selector must be set, valid and not empty; `None` if it is invalid.
pub(crate) fn validate_selector(kind: &Kind, spec: &Tree, empty: &str, errors: &mut Errors) -> Option<Selector> {
    let (selector, path) = (spec.at("selector"), SPEC.field("selector"));
    if selector.is_null() {
        errors.required(&path, "");
    } else {
        podspec::validate_label_selector(selector, &path, errors);
        if selector.map("matchLabels").is_empty() && selector.list("matchExpressions").is_empty() {
            errors.invalid(&path, selector_value(kind, selector), empty);
        }
    }
    Selector::from_object(selector).ok()
}

pub(crate) fn selector_value(kind: &Kind, selector: &Tree) -> Value {
    checks::shown(kind, "spec.selector", selector)
}

/// The template's labels must match the selector.
pub(crate) fn validate_match(selector: &Selector, template: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if !selector.is_everything() && !selector.matches_map(template.map("metadata.labels")) {
        errors.invalid(&path.field("metadata").field("labels"), template.at("metadata.labels"), NO_MATCH);
    }
}

/// A template of pods that keep running: restartPolicy Always and no active deadline.
pub(crate) fn validate_running_template(template: &Tree, owner: &str, path: &Path<'_>, errors: &mut Errors) {
    let policy = template.str("spec.restartPolicy");
    let path = path.field("spec");
    if policy != "Always" {
        errors.not_supported(&path.field("restartPolicy"), policy, &["Always"]);
    }
    if template.at("spec").has("activeDeadlineSeconds") {
        let text = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.forbidden(&path.field("activeDeadlineSeconds"), &text);
    }
}

/// A writable GCE disk can be attached to one node only.
pub(crate) fn validate_read_only_disks(template: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, volume) in template.list("spec.volumes").iter().enumerate() {
        let disk = volume.at("gcePersistentDisk");
        if !disk.is_null() && !disk.bool("readOnly") {
            let text = "must be true for replicated pods > 1; GCE PD can only be mounted on multiple machines if it is read-only";
            let spec = path.field("spec");
            let volumes = spec.field("volumes");
            errors.invalid(&volumes.index(index).field("gcePersistentDisk").field("readOnly"), false, text);
        }
    }
}

/// The selector is immutable.
pub(crate) fn validate_selector_update(kind: &Kind, object: &Tree, old: &Tree, errors: &mut Errors) {
    let specs = (object.at("spec"), old.at("spec"));
    checks::immutable(specs, "selector", |selector| selector_value(kind, selector), &SPEC, errors);
}

/// Counts must not be negative; those listed must not exceed `replicas`, and available pods must be ready.
pub(crate) fn validate_counts(status: &Tree, counts: &[&str], parts: &[&str], ready: &str, errors: &mut Errors) {
    let path = Path::root("status");
    checks::all_non_negative(status, counts, &path, errors);
    let count = |key: &str| status.int(key).unwrap_or(0);
    for key in parts.iter().filter(|key| count(key) > count("replicas")) {
        errors.invalid(&path.field(key), count(key), "cannot be greater than status.replicas");
    }
    if count("availableReplicas") > count("readyReplicas") {
        let text = format!("cannot be greater than {ready}");
        errors.invalid(&path.field("availableReplicas"), count("availableReplicas"), &text);
    }
}

/// The collision count must not decrease, since names derived from it must not repeat.
pub(crate) fn validate_collision_count(object: &Tree, old: &Tree, errors: &mut Errors) {
    let (new, stored) = (object.int("status.collisionCount"), old.int("status.collisionCount"));
    if stored.is_some_and(|stored| new.is_none_or(|new| new < stored)) {
        let path = Path::root("status");
        errors.invalid(&path.field("collisionCount"), new.unwrap_or(0), "cannot be decremented");
    }
}

/// Warnings for the template, on create and whenever the spec changes.
pub(crate) fn template_warnings(object: &Tree, old: Option<&Tree>) -> Vec<String> {
    if old.is_some_and(|old| old.at("spec") == object.at("spec")) {
        return Vec::new();
    }
    podspec::template_warnings(object.at("spec.template"), &SPEC.field("template"))
}

/// Pod names and hostnames are derived from the object's name.
pub(crate) fn name_warning(object: &Tree) -> Option<String> {
    let messages = validation::dns1123_label(object.str("metadata.name"));
    (!messages.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            messages.join(" ")
        )
    })
}

/// Warnings of kinds whose names need not be DNS labels.
pub(crate) fn warnings(object: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings: Vec<String> = if old.is_none() { name_warning(object).into_iter().collect() } else { Vec::new() };
    warnings.extend(template_warnings(object, old));
    warnings
}

/// The cells Containers, Images and Selector.
pub(crate) fn container_cells(template: &Tree, selector: String) -> [Tree; 3] {
    let (names, images) = podspec::names_and_images(template.at("spec"));
    [Tree::from(names), Tree::from(images), Tree::from(selector)]
}

/// An integer of the object, as a cell.
pub(crate) fn count_cell(object: &Tree, path: &str) -> Tree {
    Tree::from(object.int(path).unwrap_or(0))
}

/// The status counts of ReplicaSets and ReplicationControllers.
pub(crate) fn validate_replica_status(status: &Tree, errors: &mut Errors) {
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "terminatingReplicas",
        "observedGeneration",
    ];
    validate_counts(status, &counts, &counts[1..4], "readyReplicas", errors);
}

/// The table row of ReplicaSets and ReplicationControllers.
pub(crate) fn row_with_selector(object: &Tree, selector: String, now: i64) -> Vec<Tree> {
    let mut row = vec![
        cells::name(object),
        count_cell(object, "spec.replicas"),
        count_cell(object, "status.replicas"),
        count_cell(object, "status.readyReplicas"),
        cells::age(object, now),
    ];
    row.extend(container_cells(object.at("spec.template"), selector));
    row
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn warns_about_long_names() {
        let name = "a".repeat(64);
        let object = tree! { "metadata" => tree! { "name" => name } };
        let text = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must be no more than 63 characters]";
        assert_eq!(name_warning(&object).as_deref(), Some(text));
    }

    #[test]
    fn counts_do_not_exceed_replicas() {
        let status = tree! { "replicas" => 1, "readyReplicas" => 2, "availableReplicas" => -1 };
        let mut errors = Errors::new();
        let counts = ["replicas", "readyReplicas", "availableReplicas"];
        validate_counts(&status, &counts, &counts[1..], "readyReplicas", &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "status.availableReplicas: Invalid value: -1: must be greater than or equal to 0",
                "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
            ]
        );
    }
}
