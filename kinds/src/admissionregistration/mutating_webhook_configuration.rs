//! MutatingWebhookConfiguration.

use api::Tree;

use super::{rules, webhook};
use crate::cells;
use crate::kind::{Kind, column};

pub(crate) static KIND: Kind = Kind {
    categories: &["api-extensions"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Webhooks", "integer", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults: webhook::set_mutating_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: rules::prepare_update,
    validate: |object, errors| webhook::validate(object, None, errors),
    validate_update: |object, old, errors| webhook::validate(object, Some(old), errors),
    warnings: rules::warn_of_reserved_name,
    unconditional_update: false,
    cells,
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
    )
};

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let count = object.list("webhooks").len() as i64;
    vec![cells::name(object), Tree::Int(count), cells::age(object, now)]
}
