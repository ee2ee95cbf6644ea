//! Whether a pod may run on a node, by node selector, required affinity and taints; and the same for volumes.

use api::Tree;

use super::taints::tolerates;

/// By node name, node selector and required node affinity.
pub(crate) fn is_wanted(spec: &Tree, node: &Tree) -> bool {
    let name = spec.str("nodeName");
    if !name.is_empty() && name != node.str("metadata.name") {
        return false;
    }
    let labels = node.map("metadata.labels");
    let selected = spec.map("nodeSelector").iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec.at("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    selected && (required.is_null() || required.list("nodeSelectorTerms").iter().any(|term| matches_term(term, node)))
}

/// Whether a volume is accessible from a node.
pub(crate) fn is_accessible_from(volume: &Tree, node: &Tree) -> bool {
    let required = volume.at("spec.nodeAffinity.required");
    required.is_null() || required.list("nodeSelectorTerms").iter().any(|term| matches_term(term, node))
}

/// A term without requirements matches nothing.
fn matches_term(term: &Tree, node: &Tree) -> bool {
    let (expressions, fields) = (term.list("matchExpressions"), term.list("matchFields"));
    let labels = node.map("metadata.labels");
    let by_label = |one: &Tree| matches(one, labels.get(one.str("key")).and_then(Tree::as_str));
    let by_field = |one: &Tree| one.str("key") == "metadata.name" && matches(one, Some(node.str("metadata.name")));
    (!expressions.is_empty() || !fields.is_empty()) && expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn matches(requirement: &Tree, value: Option<&str>) -> bool {
    let has = |value: &str| requirement.list("values").iter().any(|wanted| wanted.as_str() == Some(value));
    let numbers = || {
        let wanted: i64 = requirement.list("values").first()?.as_str()?.parse().ok()?;
        Some((value?.parse::<i64>().ok()?, wanted))
    };
    match requirement.str("operator") {
        "In" => value.is_some_and(has),
        "NotIn" => !value.is_some_and(has),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, wanted)| value > wanted),
        "Lt" => numbers().is_some_and(|(value, wanted)| value < wanted),
        _ => false,
    }
}

/// Whether a taint with one of these effects is not tolerated.
pub(crate) fn has_untolerated_taint(tolerations: &[Tree], node: &Tree, effects: &[&str]) -> bool {
    let counts = |taint: &&Tree| effects.contains(&taint.str("effect"));
    let mut taints = node.list("spec.taints").iter().filter(counts);
    taints.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    fn node() -> Tree {
        let taint = tree! { "key" => "gpu", "value" => "yes", "effect" => "NoSchedule" };
        tree! {
            "metadata" => tree! { "name" => "n", "labels" => tree! { "zone" => "a", "cores" => "8" } },
            "spec" => tree! { "taints" => list![taint] },
        }
    }

    #[test]
    fn affinity_selects_nodes() {
        let term = |key: &str, operator: &str, values: Tree| {
            let one = tree! { "key" => key, "operator" => operator, "values" => values };
            let field = if key == "metadata.name" { "matchFields" } else { "matchExpressions" };
            tree! { field => list![one] }
        };
        let check = |terms: Vec<Tree>, want: bool| {
            let required = tree! { "nodeSelectorTerms" => terms.clone() };
            let affinity = tree! { "requiredDuringSchedulingIgnoredDuringExecution" => required };
            let spec = tree! { "affinity" => tree! { "nodeAffinity" => affinity } };
            assert_eq!(is_wanted(&spec, &node()), want, "{terms:?}");
        };
        check(vec![], false);
        check(vec![tree! {}], false);
        check(vec![term("metadata.name", "In", list!["n"])], true);
        check(vec![term("metadata.name", "In", list!["m"])], false);
        check(vec![term("zone", "In", list!["b"]), term("zone", "In", list!["a"])], true);
        check(vec![term("zone", "NotIn", list!["a"])], false);
        check(vec![term("rack", "NotIn", list!["a"])], true);
        check(vec![term("zone", "Exists", list![])], true);
        check(vec![term("rack", "DoesNotExist", list![])], true);
        check(vec![term("cores", "Gt", list!["4"])], true);
        check(vec![term("cores", "Lt", list!["4"])], false);
        check(vec![term("zone", "Gt", list!["4"])], false);
        assert!(is_wanted(&tree! { "nodeSelector" => tree! { "zone" => "a" } }, &node()));
        assert!(!is_wanted(&tree! { "nodeSelector" => tree! { "zone" => "b" } }, &node()));
        assert!(!is_wanted(&tree! { "nodeName" => "m" }, &node()));
    }

    #[test]
    fn untolerated_taints_repel() {
        let check = |tolerations: Vec<Tree>, want: bool| {
            assert_eq!(has_untolerated_taint(&tolerations, &node(), &["NoSchedule"]), want, "{tolerations:?}");
        };
        check(vec![], true);
        check(vec![tree! { "operator" => "Exists" }], false);
        check(vec![tree! { "key" => "gpu", "operator" => "Exists", "effect" => "NoExecute" }], true);
        check(vec![tree! { "key" => "gpu", "value" => "yes" }], false);
        check(vec![tree! { "key" => "gpu", "value" => "no", "operator" => "Equal" }], true);
        assert!(!has_untolerated_taint(&[], &node(), &["NoExecute"]));
    }
}
