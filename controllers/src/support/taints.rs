//! Taints of nodes, and whether tolerations match them.

use api::Tree;

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const NO_EXECUTE: &str = "NoExecute";
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";

pub(crate) fn tolerates(toleration: &Tree, taint: &Tree) -> bool {
    let wants = |field: &str| toleration.str(field).is_empty() || toleration.str(field) == taint.str(field);
    wants("effect")
        && wants("key")
        && match toleration.str("operator") {
            "" | "Equal" => toleration.str("value") == taint.str("value"),
            "Exists" => true,
            "Lt" => compare(taint, toleration).is_some_and(std::cmp::Ordering::is_lt),
            "Gt" => compare(taint, toleration).is_some_and(std::cmp::Ordering::is_gt),
            _ => false,
        }
}

/// Compares the taint's value with the toleration's if both are integers.
fn compare(taint: &Tree, toleration: &Tree) -> Option<std::cmp::Ordering> {
    let number = |tree: &Tree| tree.str("value").parse::<i64>().ok();
    Some(number(taint)?.cmp(&number(toleration)?))
}

/// The taints of a node with an effect.
pub(crate) fn with_effect<'a>(node: &'a Tree, effect: &'a str) -> impl Iterator<Item = &'a Tree> {
    node.list("spec.taints").iter().filter(move |taint| taint.str("effect") == effect)
}

pub(crate) fn is(taint: &Tree, key: &str, effect: &str) -> bool {
    taint.str("key") == key && taint.str("effect") == effect
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn tolerations_match_key_value_and_effect() {
        let check = |toleration: [&str; 4], taint: [&str; 3], want: bool| {
            let [key, operator, value, effect] = toleration;
            let toleration = tree! { "key" => key, "operator" => operator, "value" => value, "effect" => effect };
            let [key, value, effect] = taint;
            let taint = tree! { "key" => key, "value" => value, "effect" => effect };
            assert_eq!(tolerates(&toleration, &taint), want, "{toleration:?} {taint:?}");
        };
        check(["a", "", "x", ""], ["a", "x", NO_EXECUTE], true);
        check(["a", "Equal", "y", ""], ["a", "x", NO_EXECUTE], false);
        check(["a", "Exists", "", NO_EXECUTE], ["a", "x", NO_EXECUTE], true);
        check(["a", "Exists", "", NO_SCHEDULE], ["a", "x", NO_EXECUTE], false);
        check(["b", "Exists", "", ""], ["a", "x", NO_EXECUTE], false);
        check(["", "Exists", "", ""], ["a", "x", NO_EXECUTE], true);
        check(["a", "Gt", "5", ""], ["a", "7", NO_EXECUTE], true);
        check(["a", "Lt", "5", ""], ["a", "7", NO_EXECUTE], false);
        check(["a", "Lt", "5", ""], ["a", "x", NO_EXECUTE], false);
    }
}
