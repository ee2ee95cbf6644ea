//! ValidatingWebhookConfiguration.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    categories: &["api-extensions"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Webhooks", "integer", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "validatingwebhookconfiguration",
    )
};
