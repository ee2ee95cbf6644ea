//! ServiceAccount.

use api::{Tree, tree};

use crate::kind::{Kind, Lifecycle, Subresource, Verb};

/// ServiceAccount.
pub static KIND: Kind = Kind {
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        gvk: Some(("authentication.k8s.io", "v1", "TokenRequest")),
        verbs: &[Verb::Create],
    }],
    prepare_create: |object, _| clean_references(object),
    prepare_update: |object, _, _| clean_references(object),
    warnings,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount")
};

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Only the name of a secret reference is kept.
fn clean_references(object: &mut Tree) {
    for secret in object.list_mut("secrets") {
        let name = secret.str("name").to_string();
        *secret = if name.is_empty() {
            tree! {}
        } else {
            tree! { "name" => name }
        };
    }
}

fn warnings(object: &Tree, old: Option<&Tree>) -> Vec<String> {
    let asks = |object: &Tree| object.map("metadata.annotations").contains(MOUNTABLE);
    if !asks(object) || old.is_some_and(asks) {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
         mounted secrets"
    )]
}
