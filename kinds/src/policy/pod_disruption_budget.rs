//! PodDisruptionBudget.

use crate::kind::{Kind, Subresource, Verb, column};

pub static KIND: Kind = Kind {
    short_names: &["pdb"],
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Min Available", "string", "", 0),
        column("Max Unavailable", "string", "", 0),
        column("Allowed Disruptions", "integer", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
};
