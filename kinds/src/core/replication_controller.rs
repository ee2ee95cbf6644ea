//! ReplicationController.

use api::Tree;
use api::field::Errors;
use api::selector::Selector;

use crate::kind::{Kind, Lifecycle, StatusRules, Subresource, Verb, column, selectable};
use crate::workload::{self, SPEC};
use crate::{cells, checks, podspec, scale, strategy};

pub(crate) static KIND: Kind = Kind {
    short_names: &["rc"],
    categories: &["all"],
    storage: "controllers",
    subresources: &[
        Subresource {
            name: "scale",
            gvk: Some(("autoscaling", "v1", "Scale")),
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
        },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    set_defaults,
    prepare_create: workload::prepare_create,
    prepare_update: workload::prepare_update,
    validate,
    validate_update: |controller, _, errors| validate(controller, errors),
    // On update upstream uses the template that is replaced.
    warnings: |controller, old| match old {
        Some(old) => workload::template_warnings(old, Some(controller)),
        None => workload::warnings(controller, None),
    },
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    scale: Some(scale::REPLICAS),
    columns: &[
        column("Name", "string", "name", 0),
        column("Desired", "integer", "", 0),
        column("Current", "integer", "", 0),
        column("Ready", "integer", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    cells: row,
    selectable: &[selectable("status.replicas")],
    lifecycle: Lifecycle { orphans_by_default: true, ..Lifecycle::DEFAULT },
    ..Kind::namespaced("", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller")
};

/// Selector and labels default to the template's labels.
fn set_defaults(controller: &mut Tree) {
    let spec = controller.child("spec");
    spec.set_default("replicas", 1);
    if !spec.has("template") {
        return;
    }
    podspec::set_template_defaults(spec.child("template"));
    let labels = spec.at("template.metadata.labels").clone();
    if labels.as_map().is_none_or(api::Map::is_empty) {
        return;
    }
    if spec.map("selector").is_empty() {
        spec.set("selector", labels.clone());
    }
    if controller.map("metadata.labels").is_empty() {
        controller.child("metadata").set("labels", labels);
    }
}

fn validate(controller: &Tree, errors: &mut Errors) {
    let spec = controller.at("spec");
    checks::non_negative(spec, "minReadySeconds", &SPEC, errors);
    if spec.map("selector").is_empty() {
        errors.required(&SPEC.field("selector"), "");
    }
    checks::non_negative(spec, "replicas", &SPEC, errors);
    let (template, path) = (spec.at("template"), SPEC.field("template"));
    if template.is_null() {
        return errors.required(&path, "");
    }
    workload::validate_match(&Selector::from_labels(spec.map("selector")), template, &path, errors);
    podspec::validate_template(template, &path, errors);
    if spec.int("replicas").unwrap_or(0) > 1 {
        workload::validate_read_only_disks(template, &path, errors);
    }
    workload::validate_running_template(template, "ReplicationController", &path, errors);
}

fn validate_status(controller: &Tree, _: &Tree, errors: &mut Errors) {
    workload::validate_replica_status(controller.at("status"), errors);
}

fn row(controller: &Tree, now: i64) -> Vec<Tree> {
    workload::row_with_selector(controller, cells::labels(controller.map("spec.selector")), now)
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn labels_default_to_the_template() {
        let template = tree! { "metadata" => tree! { "labels" => tree! { "a" => "b" } } };
        let mut controller = tree! { "spec" => tree! { "template" => template } };
        set_defaults(&mut controller);
        assert_eq!(controller.at("spec.selector"), &tree! { "a" => "b" });
        assert_eq!(controller.at("metadata.labels"), &tree! { "a" => "b" });
    }
}
