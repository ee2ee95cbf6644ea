//! CronJob.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Schedule", "string", "", 0),
        column("Timezone", "string", "", 0),
        column("Suspend", "boolean", "", 0),
        column("Active", "integer", "", 0),
        column("Last Schedule", "string", "", 0),
        column("Age", "string", "", 0),
        column("Containers", "string", "", 1),
        column("Images", "string", "", 1),
        column("Selector", "string", "", 1),
    ],
    ..Kind::namespaced("batch", "v1", "CronJob", "cronjobs", "cronjob")
};
