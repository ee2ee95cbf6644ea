//! An aggregated role has the rules of all roles that its selectors match.

use std::sync::Arc;

use api::selector::Selector;
use api::{Tree, tree};

pub(super) fn is_aggregated(role: &Tree) -> bool {
    !role.list("aggregationRule.clusterRoleSelectors").is_empty()
}

/// The role to apply if its rules are out of date. `roles` are sorted by name, which is the order of the rules.
pub(super) fn plan(role: &Tree, roles: &[Arc<Tree>]) -> Option<Tree> {
    if !is_aggregated(role) {
        return None;
    }
    let selectors: Vec<Selector> = role
        .list("aggregationRule.clusterRoleSelectors")
        .iter()
        .filter_map(|selector| Selector::from_object(selector).ok())
        .collect();
    let chosen = |other: &&Arc<Tree>| {
        let labels = other.map("metadata.labels");
        name(other) != name(role) && selectors.iter().any(|selector| selector.matches_map(labels))
    };
    let mut rules: Vec<Tree> = Vec::new();
    for rule in roles.iter().filter(chosen).flat_map(|other| other.list("rules")) {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    (rules != role.list("rules")).then(|| {
        tree! {
            "apiVersion" => "rbac.authorization.k8s.io/v1",
            "kind" => "ClusterRole",
            "metadata" => tree! { "name" => name(role) },
            "rules" => rules,
        }
    })
}

fn name(role: &Tree) -> &str {
    role.str("metadata.name")
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn role(name: &str, label: &str, verbs: &[&str]) -> Arc<Tree> {
        let rules: Vec<Tree> = verbs.iter().map(|verb| tree! { "verbs" => list![*verb] }).collect();
        let metadata = tree! { "name" => name, "labels" => tree! { "to" => label } };
        Arc::new(tree! { "metadata" => metadata, "rules" => rules })
    }

    fn gathering(verbs: &[&str]) -> Tree {
        let mut gathering = (*role("all", "x", verbs)).clone();
        let selector = tree! { "matchLabels" => tree! { "to" => "x" } };
        gathering.set("aggregationRule", tree! { "clusterRoleSelectors" => list![selector] });
        gathering
    }

    #[test]
    fn aggregates_rules_once_and_never_from_itself() {
        let all = gathering(&["old"]);
        let roles = [
            Arc::new(all.clone()),
            role("b", "x", &["get", "list"]),
            role("c", "y", &["no"]),
            role("d", "x", &["get", "watch"]),
        ];
        let applied = plan(&all, &roles).expect("a change");
        let verbs: Vec<&str> = applied.list("rules").iter().filter_map(|rule| rule.list("verbs")[0].as_str()).collect();
        assert_eq!(verbs, ["get", "list", "watch"]);
        assert_eq!(plan(&gathering(&["get", "list", "watch"]), &roles), None, "it is as it should be");
        assert_eq!(plan(&roles[1], &roles), None, "it gathers nothing");
        assert_eq!(plan(&all, &[]).expect("a change").list("rules"), &[] as &[Tree], "nothing is left to gather");
    }
}
