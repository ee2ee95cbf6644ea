//! Validation of pod updates: only images, the deadline, tolerations, gates and a few others may change.

use std::collections::HashSet;

use api::Tree;
use api::field::{Errors, Path, Value};

use super::validate::annotations_and_spec;
use crate::internal;
use crate::podspec::annotations;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(pod: &Tree, old: &Tree, errors: &mut Errors) {
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

/// The deadline may be set and shortened. Returns false if nothing else need be validated.
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

/// Tolerations may only be added, or change their seconds. The new list is validated with the spec.
fn validate_tolerations(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if new.at("tolerations") == old.at("tolerations") {
        return;
    }
    let kept: HashSet<[&str; 4]> = new.list("tolerations").iter().map(all_but_seconds).collect();
    if !old.list("tolerations").iter().all(|before| kept.contains(&all_but_seconds(before))) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
    }
}

fn all_but_seconds(toleration: &Tree) -> [&str; 4] {
    ["key", "operator", "value", "effect"].map(|key| toleration.get(key).and_then(Tree::as_str).unwrap_or(""))
}

fn validate_gates(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let before: HashSet<&str> = old.list("schedulingGates").iter().map(|gate| gate.str("name")).collect();
    for (index, gate) in new.list("schedulingGates").iter().enumerate() {
        let name = gate.str("name");
        if !before.contains(name) {
            let text = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(index).field("name"), &text);
        }
    }
}

/// Restores the fields validated above; any remaining difference is not allowed.
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

/// The scheduling constraints of a gated pod may be tightened, never relaxed.
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

/// A term without requirements matches nothing, and must stay so.
fn only_adds(new: &Tree, old: &Tree) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| old.list(list).is_empty()) {
        return lists.iter().all(|list| new.list(list).is_empty());
    }
    lists.iter().all(|list| new.list(list).starts_with(old.list(list)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{json, tree};

    fn pod(fields: &str) -> Tree {
        let text = format!(r#"{{"containers":[{{"name":"c","image":"a:1","resources":{{}}}}]{fields}}}"#);
        let mut pod =
            tree! { "metadata" => tree! { "name" => "p" }, "spec" => json::decode(text.as_bytes()).expect(&text) };
        crate::podspec::set_pod_defaults(&mut pod);
        pod
    }

    fn check(old: &str, new: &str, expected: &[&str]) {
        let mut errors = Errors::new();
        validate(&pod(new), &pod(old), &mut errors);
        let texts: Vec<String> =
            errors.iter().map(|error| error.to_string().lines().next().unwrap_or("").to_string()).collect();
        assert_eq!(texts, expected, "{old} {new}");
    }

    #[test]
    fn most_fields_are_immutable() {
        let other = format!("spec: Forbidden: {UPDATABLE}");
        check("", "", &[]);
        check("", r#","nodeName":"n""#, &[&other]);
        check("", r#","activeDeadlineSeconds":10"#, &[]);
        check(
            r#","activeDeadlineSeconds":10"#,
            r#","activeDeadlineSeconds":20"#,
            &["spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value"],
        );
        check(
            r#","activeDeadlineSeconds":10"#,
            "",
            &["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
        );
        check("", r#","tolerations":[{"operator":"Exists"}]"#, &[]);
        check(
            r#","tolerations":[{"operator":"Exists"}]"#,
            "",
            &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
        );
    }

    #[test]
    fn gated_pods_may_tighten_constraints() {
        let gate = r#","schedulingGates":[{"name":"g"}]"#;
        check(gate, "", &[]);
        check(
            "",
            gate,
            &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"],
        );
        check(gate, &format!(r#"{gate},"nodeSelector":{{"a":"b"}}"#), &[]);
        check(
            &format!(r#"{gate},"nodeSelector":{{"a":"b"}}"#),
            &format!(r#"{gate},"nodeSelector":{{"a":"c"}}"#),
            &[
                "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            ],
        );
        let affinity = |expressions: &str| {
            format!(
                r#"{gate},"affinity":{{"nodeAffinity":{{"{REQUIRED}":{{"nodeSelectorTerms":[{{"matchExpressions":[{expressions}]}}]}}}}}}"#
            )
        };
        let (one, two) = (
            r#"{"key":"a","operator":"Exists"}"#,
            r#"{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}"#,
        );
        check(gate, &affinity(one), &[]);
        check(&affinity(one), &affinity(two), &[]);
        check(
            &affinity(two),
            &affinity(one),
            &[&format!(
                "spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]: Invalid value: {{\"MatchExpressions\":[{{\"Key\":\"a\",\"Operator\":\"Exists\",\"Values\":null}}],\"MatchFields\":null}}: only additions are allowed (no mutations or deletions)"
            )],
        );
    }
}
