//! Status conditions: at most one of each type.

use api::{Tree, list, tree};

/// The condition of a type.
pub(crate) fn get<'a>(object: &'a Tree, kind: &str) -> Option<&'a Tree> {
    object.list("status.conditions").iter().find(|condition| condition.str("type") == kind)
}

/// Whether an object has a condition that is True.
pub(crate) fn is_true(object: &Tree, kind: &str) -> bool {
    get(object, kind).is_some_and(|condition| condition.str("status") == "True")
}

/// Appends a condition, as workloads do: nothing changes if status and reason are equal, and the transition time is
/// kept if the status is.
pub(crate) fn set(status: &mut Tree, mut condition: Tree) {
    let kind = condition.str("type").to_string();
    let conditions = status.list_entry("conditions");
    if let Some(old) = conditions.iter().find(|old| old.str("type") == kind) {
        let same_status = old.str("status") == condition.str("status");
        if same_status && old.str("reason") == condition.str("reason") {
            return;
        }
        if same_status && old.has("lastTransitionTime") {
            condition.set("lastTransitionTime", old.at("lastTransitionTime").clone());
        }
    }
    conditions.retain(|old| old.str("type") != kind);
    conditions.push(condition);
}

/// Updates a condition in place, as meta/v1 does: message and reason are updated, the transition time only with the
/// status. Returns whether something changed.
pub(crate) fn set_in_place(status: &mut Tree, mut condition: Tree) -> bool {
    let kind = condition.str("type").to_string();
    let conditions = status.list_entry("conditions");
    let Some(old) = conditions.iter_mut().find(|old| old.str("type") == kind) else {
        conditions.push(condition);
        return true;
    };
    if old.str("status") == condition.str("status") && old.has("lastTransitionTime") {
        condition.set("lastTransitionTime", old.at("lastTransitionTime").clone());
    }
    let changed = *old != condition;
    *old = condition;
    changed
}

/// The status of a strategic merge patch that sets a condition of a pod. A new one comes last: without an order, the
/// server would put it before those that the pod has.
pub(crate) fn status_patch(pod: &Tree, condition: Tree) -> Tree {
    let is_new = get(pod, condition.str("type")).is_none();
    let of_type = |condition: &Tree| tree! { "type" => condition.str("type") };
    let known = pod.list("status.conditions").iter().map(of_type);
    let order: Vec<Tree> = known.chain(is_new.then(|| of_type(&condition))).collect();
    tree! { "$setElementOrder/conditions" => order, "conditions" => list![condition] }
}

/// Returns whether there was one.
pub(crate) fn remove(status: &mut Tree, kind: &str) -> bool {
    let Some(Tree::List(conditions)) = status.get_mut("conditions") else { return false };
    let before = conditions.len();
    conditions.retain(|condition| condition.str("type") != kind);
    let removed = conditions.len() < before;
    if conditions.is_empty() {
        status.remove("conditions");
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Tree {
        tree! { "type" => kind, "status" => status, "reason" => reason, "lastTransitionTime" => time }
    }

    fn text(status: &Tree) -> String {
        let fields = ["type", "status", "reason", "lastTransitionTime"];
        let text = |condition: &Tree| fields.map(|field| condition.str(field)).join(" ");
        status.list("conditions").iter().map(text).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn transition_time_follows_the_status() {
        let mut status = tree! {};
        set(&mut status, condition("A", "True", "x", "1"));
        set(&mut status, condition("B", "True", "x", "1"));
        set(&mut status, condition("A", "True", "x", "2"));
        assert_eq!(text(&status), "A True x 1, B True x 1");
        set(&mut status, condition("A", "True", "y", "3"));
        assert_eq!(text(&status), "B True x 1, A True y 1");
        set(&mut status, condition("B", "False", "x", "4"));
        assert_eq!(text(&status), "A True y 1, B False x 4");
        assert!(set_in_place(&mut status, condition("A", "True", "z", "5")));
        assert!(!set_in_place(&mut status, condition("A", "True", "z", "6")));
        assert!(set_in_place(&mut status, condition("A", "False", "z", "7")));
        assert_eq!(text(&status), "A False z 7, B False x 4");
        let object = tree! { "status" => status.clone() };
        assert!(!is_true(&object, "A") && get(&object, "B").is_some());
        assert!(remove(&mut status, "A") && remove(&mut status, "B") && !remove(&mut status, "B"));
        assert_eq!(status, tree! {});
    }

    #[test]
    fn patches_keep_the_order_of_conditions() {
        let scheduled = condition("PodScheduled", "True", "", "1");
        let pod = tree! { "status" => tree! { "conditions" => list![scheduled] } };
        let order = |kind: &str| {
            let patch = status_patch(&pod, condition(kind, "True", "x", "2"));
            assert_eq!(patch.list("conditions").len(), 1, "only the new one");
            let types = patch.list("$setElementOrder/conditions").iter().map(|one| one.str("type").to_string());
            types.collect::<Vec<_>>()
        };
        assert_eq!(order("DisruptionTarget"), ["PodScheduled", "DisruptionTarget"]);
        assert_eq!(order("PodScheduled"), ["PodScheduled"]);
    }
}
