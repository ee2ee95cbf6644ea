//! HorizontalPodAutoscaler.

mod cells;
mod defaults;
mod metrics;
mod validate;

pub(super) use cells::cells;
pub(super) use defaults::default_metrics;
pub(super) use validate::{validate, validate_status, validate_update};

use crate::kind::{Kind, StatusRules, Subresource, Verb, column};
use crate::strategy;

pub(crate) static KIND: Kind = Kind {
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    set_defaults: defaults::set_defaults,
    prepare_create: strategy::create,
    prepare_update: strategy::update,
    validate,
    validate_update,
    reset: &["status"],
    status: Some(StatusRules { prepare: strategy::update_status, validate: validate_status, reset: &["spec"] }),
    columns: &[
        column("Name", "string", "name", 0),
        column("Reference", "string", "", 0),
        column("Targets", "string", "", 0),
        column("MinPods", "string", "", 0),
        column("MaxPods", "string", "", 0),
        column("Replicas", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells,
    ..Kind::namespaced(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
    )
};
