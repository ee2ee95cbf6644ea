//! Every active namespace has a default service account.

use api::{Tree, tree};

pub(crate) const DEFAULT: &str = "default";

/// The account to create, if any.
pub(crate) fn plan(namespace: Option<&Tree>, is_there: bool) -> Option<Tree> {
    let lives = namespace.is_some_and(is_active);
    (lives && !is_there).then(|| {
        tree! {
            "apiVersion" => "v1",
            "kind" => "ServiceAccount",
            "metadata" => tree! { "name" => DEFAULT },
        }
    })
}

/// A terminating namespace rejects creates.
pub(crate) fn is_active(namespace: &Tree) -> bool {
    namespace.str("status.phase") == "Active" && !namespace.at("metadata").has("deletionTimestamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_namespaces_get_an_account() {
        let namespace = |phase: &str| tree! { "metadata" => tree! {}, "status" => tree! { "phase" => phase } };
        assert!(plan(Some(&namespace("Active")), false).is_some());
        assert_eq!(plan(Some(&namespace("Active")), true), None);
        assert_eq!(plan(Some(&namespace("Terminating")), false), None);
        assert_eq!(plan(None, false), None);
    }
}
