//! Every namespace that lives has the account that pods run as unless they name another.

use api::{Tree, tree};

pub const DEFAULT: &str = "default";

/// The account to make, if any.
pub fn plan(namespace: Option<&Tree>, is_there: bool) -> Option<Tree> {
    let lives = namespace.is_some_and(is_active);
    (lives && !is_there).then(|| {
        tree! {
            "apiVersion" => "v1",
            "kind" => "ServiceAccount",
            "metadata" => tree! { "name" => DEFAULT },
        }
    })
}

/// A namespace that is going takes nothing new.
pub fn is_active(namespace: &Tree) -> bool {
    namespace.str("status.phase") == "Active" && !namespace.at("metadata").has("deletionTimestamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_namespace_gets_its_account() {
        let namespace = |phase: &str| tree! { "metadata" => tree! {}, "status" => tree! { "phase" => phase } };
        assert!(plan(Some(&namespace("Active")), false).is_some());
        assert_eq!(plan(Some(&namespace("Active")), true), None);
        assert_eq!(plan(Some(&namespace("Terminating")), false), None);
        assert_eq!(plan(None, false), None);
    }
}
