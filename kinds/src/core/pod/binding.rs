//! The binding subresource of pods: assigns a pod to a node once.

use api::field::{Errors, Path};
use api::status::Status;
use api::{Map, Tree};

use super::conditions;

/// Validates a Binding. Errors are plain, without a reason, as in upstream.
pub fn validate(binding: &Tree) -> Result<(), Box<Status>> {
    let mut errors = Errors::new();
    let path = Path::root("target");
    let kind = binding.str("target.kind");
    if !kind.is_empty() && kind != "Node" {
        errors.not_supported(&path.field("kind"), kind, &["Node", "<empty>"]);
    }
    if binding.str("target.name").is_empty() {
        errors.required(&path.field("name"), "");
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(Box::new(Status::new(500, "", one))),
        many => Err(Box::new(Status::new(500, "", format!("[{}]", many.join(", "))))),
    }
}

/// Sets the node of the binding, and copies its labels and annotations to the pod. `now` is in seconds since the Unix
/// epoch.
pub fn bind(pod: &mut Tree, binding: &Tree, now: i64) -> Result<(), Box<Status>> {
    let name = pod.str("metadata.name").to_string();
    if let Some(why) = why_not(pod, &name) {
        return Err(Box::new(Status::conflict("", "pods/binding", &name, &why)));
    }
    pod.child("spec").set("nodeName", binding.at("target.name").clone());
    // The nominated node is no longer relevant.
    pod.child("status").remove("nominatedNodeName");
    for key in ["annotations", "labels"] {
        merge(pod, key, binding.at("metadata").map(key));
    }
    conditions::set(pod, "PodScheduled", "True", "", "", now);
    Ok(())
}

fn why_not(pod: &Tree, name: &str) -> Option<String> {
    let node = pod.str("spec.nodeName");
    if !pod.str("metadata.deletionTimestamp").is_empty() {
        Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
    } else if !node.is_empty() {
        Some(format!("pod {name} is already assigned to node \"{node}\""))
    } else if !pod.list("spec.schedulingGates").is_empty() {
        Some(format!("pod {name} has non-empty .spec.schedulingGates"))
    } else {
        None
    }
}

fn merge(pod: &mut Tree, key: &str, entries: &Map) {
    if entries.is_empty() {
        return;
    }
    let own = pod.child("metadata").child(key);
    for (key, value) in entries.iter() {
        own.set(key, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn binding() -> Tree {
        tree! {
            "metadata" => tree! { "annotations" => tree! { "x" => "y" }, "labels" => tree! { "zone" => "a" } },
            "target" => tree! { "kind" => "Node", "name" => "n" },
        }
    }

    #[test]
    fn binding_sets_node_and_metadata() {
        let mut pod = tree! { "metadata" => tree! { "name" => "p" }, "spec" => tree! {}, "status" => tree! {} };
        bind(&mut pod, &binding(), 0).expect("a free pod");
        assert_eq!(pod.str("spec.nodeName"), "n");
        assert_eq!(pod.str("metadata.annotations.x"), "y");
        assert_eq!(pod.str("metadata.labels.zone"), "a");
        assert!(conditions::is_true(&pod, "PodScheduled"));
    }

    #[test]
    fn reports_pods_that_cannot_be_bound() {
        let check = |spec: Tree, deleted: &str, why: &str| {
            let mut pod =
                tree! { "metadata" => tree! { "name" => "p", "deletionTimestamp" => deleted }, "spec" => spec };
            let status = bind(&mut pod, &binding(), 0).expect_err(why);
            assert_eq!(status.code, 409);
            assert_eq!(status.message, format!("Operation cannot be fulfilled on pods/binding \"p\": {why}"));
        };
        check(tree! { "nodeName" => "m" }, "", "pod p is already assigned to node \"m\"");
        check(
            tree! { "schedulingGates" => list![tree! { "name" => "g" }] },
            "",
            "pod p has non-empty .spec.schedulingGates",
        );
        check(tree! {}, "2024-01-01T00:00:00Z", "pod p is being deleted, cannot be assigned to a host");
    }

    #[test]
    fn target_is_a_named_node() {
        let check = |target: Tree, message: &str| {
            let status = validate(&tree! { "target" => target }).expect_err(message);
            assert_eq!((status.code, status.message.as_str()), (500, message));
        };
        check(tree! { "kind" => "Node" }, "target.name: Required value");
        check(
            tree! { "kind" => "Pod", "name" => "x" },
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
        );
    }
}
