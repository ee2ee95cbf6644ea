//! HorizontalPodAutoscaler.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Reference", "string", "", 0),
        column("Targets", "string", "", 0),
        column("MinPods", "string", "", 0),
        column("MaxPods", "string", "", 0),
        column("Replicas", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
    )
};
