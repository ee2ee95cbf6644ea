//! What an update of a pod may change: images, a deadline, tolerations, gates, and little else.

use api::Tree;
use api::field::{Errors, Path, Value};

use super::validate::annotations_and_spec;
use crate::internal;
use crate::podspec::annotations;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub fn validate(pod: &Tree, old: &Tree, errors: &mut Errors) {
    annotations_and_spec(pod, errors);
    let metadata = Path::root("metadata");
    let (own, before) = (pod.map("metadata.annotations"), old.map("metadata.annotations"));
    annotations::validate_update(own, before, &metadata.field("annotations"), errors);
    let (new, old) = (pod.at("spec"), old.at("spec"));
    let path = Path::root("spec");
    for list in ["containers", "initContainers"] {
        if new.list(list).len() != old.list(list).len() {
            return errors.forbidden(&path.field(list), "pod updates may not add or remove containers");
        }
    }
    if !validate_deadline(new, old, &path.field("activeDeadlineSeconds"), errors) {
        return;
    }
    validate_tolerations(new, old, &path.field("tolerations"), errors);
    validate_gates(new, old, &path.field("schedulingGates"), errors);
    if new != old {
        validate_rest(new, old, &path, errors);
    }
}

/// A deadline may be set and shortened. False if nothing else need be judged.
fn validate_deadline(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) -> bool {
    let high = i64::from(i32::MAX);
    match (new.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=high).contains(&seconds) => {
            errors.invalid(path, seconds, &format!("must be between 0 and {high}, inclusive"));
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(path, seconds, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            let text = "must not update from a positive integer to nil value";
            errors.invalid(path, Value::raw("null"), text);
            true
        }
        _ => true,
    }
}

/// Every toleration stays, but for its seconds. The new list as such is judged with the spec.
fn validate_tolerations(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    const KEYS: &[&str] = &["key", "operator", "value", "effect"];
    let same = |a: &Tree, b: &Tree| KEYS.iter().all(|key| a.str(key) == b.str(key));
    let kept = |before: &Tree| new.list("tolerations").iter().any(|now| same(before, now));
    if !old.list("tolerations").iter().all(kept) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
    }
}

fn validate_gates(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for (index, gate) in new.list("schedulingGates").iter().enumerate() {
        let name = gate.str("name");
        if !old.list("schedulingGates").iter().any(|before| before.str("name") == name) {
            let text = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(index).field("name"), &text);
        }
    }
}

/// Puts back what was judged above; whatever differs after that may not change.
fn validate_rest(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut munged = new.clone();
    for list in ["containers", "initContainers"] {
        for (container, before) in munged.list_mut(list).iter_mut().zip(old.list(list)) {
            restore(container, before, "image");
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut munged, old, key);
    }
    let grace = "terminationGracePeriodSeconds";
    if old.int(grace).is_some_and(|seconds| seconds < 0) && munged.int(grace) == Some(1) {
        restore(&mut munged, old, grace);
    }
    if !old.list("schedulingGates").is_empty() {
        validate_gated(&mut munged, old, path, errors);
    }
    if munged != *old {
        let difference = internal::difference(old, &munged, "PodSpec");
        errors.forbidden(path, &format!("{UPDATABLE}\n{difference}"));
    }
}

fn restore(tree: &mut Tree, old: &Tree, key: &str) {
    crate::kind::keep_old(tree, old, key);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// A pod that is held back may be told more about where it goes, never less.
fn validate_gated(munged: &mut Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if munged.at("nodeSelector") != old.at("nodeSelector") {
        let now = munged.map("nodeSelector");
        if old.map("nodeSelector").iter().any(|(key, value)| now.get(key) != Some(value)) {
            let text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(&path.field("nodeSelector"), munged.at("nodeSelector"), text);
        }
        restore(munged, old, "nodeSelector");
    }
    let (now, before) = (munged.at("affinity.nodeAffinity"), old.at("affinity.nodeAffinity"));
    if now == before {
        return;
    }
    validate_node_affinity(now, before, &path.field("affinity").field("nodeAffinity"), errors);
    let other = ["podAffinity", "podAntiAffinity"].iter().any(|key| munged.at("affinity").has(key));
    if !old.has("affinity") && !other {
        munged.remove("affinity");
    } else {
        restore(munged.child("affinity"), old.at("affinity"), "nodeAffinity");
    }
}

fn validate_node_affinity(now: &Tree, before: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field(REQUIRED);
    let path = path.field("nodeSelectorTerms");
    let (new, old) = (now.at(REQUIRED).list("nodeSelectorTerms"), before.at(REQUIRED).list("nodeSelectorTerms"));
    if old.is_empty() {
        return;
    }
    if new.len() != old.len() {
        let text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&path, shown_terms(new), text);
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if !only_adds(new, old) {
            let text = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(index), internal::shown(new, "NodeSelectorTerm"), text);
        }
    }
}

fn shown_terms(terms: &[Tree]) -> Value {
    if terms.is_empty() { Value::raw("null") } else { internal::shown_list(terms, "NodeSelectorTerm") }
}

/// A term without requirements matches nothing, and must go on doing so.
fn only_adds(new: &Tree, old: &Tree) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| old.list(list).is_empty()) {
        return lists.iter().all(|list| new.list(list).is_empty());
    }
    lists.iter().all(|list| new.list(list).starts_with(old.list(list)))
}
