//! HorizontalPodAutoscaler in autoscaling/v1. Uses the rules of v2 on the converted object.

use api::Tree;
use api::field::Errors;

use super::conversion::{from_v2, to_v2};
use super::horizontal_pod_autoscaler as v2;
use crate::kind::{Conversion, Kind, StatusRules, Subresource, Verb, column};
use crate::strategy;

pub(crate) static KIND: Kind = Kind {
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    conversion: Some(Conversion {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        to_storage: to_v2,
        from_storage: from_v2,
    }),
    set_defaults: |autoscaler| autoscaler.child("spec").set_default("minReplicas", 1),
    prepare_create: strategy::create,
    prepare_update: strategy::update,
    validate: |autoscaler, errors| v2::validate(&to_v2(autoscaler.clone()), errors),
    validate_update,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: v2::validate_status, reset: &["spec"] }),
    columns: &[
        column("Name", "string", "name", 0),
        column("Reference", "string", "", 0),
        column("Targets", "string", "", 0),
        column("MinPods", "string", "", 0),
        column("MaxPods", "string", "", 0),
        column("Replicas", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: |autoscaler, now| v2::cells(&cpu_first(to_v2(autoscaler.clone())), now),
    ..Kind::namespaced(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
    )
};

fn validate_update(autoscaler: &Tree, old: &Tree, errors: &mut Errors) {
    v2::validate_update(&to_v2(autoscaler.clone()), &to_v2(old.clone()), errors);
}

/// v1 does not have the position of its target among the metrics; usually it is the first.
fn cpu_first(mut autoscaler: Tree) -> Tree {
    if let Some(Tree::List(metrics)) = autoscaler.child("spec").get_mut("metrics") {
        metrics.sort_by_key(|metric| metric.str("resource.name") != "cpu");
    }
    autoscaler
}
