//! The resize subresource of pods: changes CPU and memory of containers in a running pod.

use api::Tree;
use api::field::{Errors, Path, Value};

use super::validate::annotations_and_spec;
use crate::kind::{Context, bump_generation, keep_old};
use crate::podspec::resources::aggregate::is_restartable;
use crate::podspec::{annotations, qos};
use crate::prepare;

const CONTAINERS: &[&str] = &["containers", "initContainers"];

/// Keeps everything except resources and resize policies. Validation rejects added, removed, moved or renamed
/// containers.
pub fn prepare(pod: &mut Tree, old: &Tree, _: &Context<'_>) {
    let before = old.at("spec");
    if CONTAINERS.iter().all(|list| pod.at("spec").list(list).len() == before.list(list).len()) {
        let mut spec = before.clone();
        for list in CONTAINERS {
            keep_resources(&mut spec, pod.at("spec"), list);
        }
        keep_old(&mut spec, pod.at("spec"), "resources");
        pod.set("spec", spec);
        keep_old(pod, old, "status");
        prepare::keep_meta(pod, old);
    }
    bump_generation(pod, old, &["spec"]);
}

fn keep_resources(spec: &mut Tree, new: &Tree, list: &str) {
    let renamed = |(old, new): (&Tree, &Tree)| old.str("name") != new.str("name");
    if spec.list(list).iter().zip(new.list(list)).any(renamed) {
        return keep_old(spec, new, list);
    }
    for (container, new) in spec.list_mut(list).iter_mut().zip(new.list(list)) {
        keep_old(container, new, "resources");
        keep_old(container, new, "resizePolicy");
    }
}

/// Validates a resize.
pub fn validate(pod: &Tree, old: &Tree, errors: &mut Errors) {
    if old.map("metadata.annotations").contains(annotations::MIRROR) {
        return errors.forbidden(&Path::root(""), "static pods cannot be resized");
    }
    if old.str("spec.os.name") == "windows" {
        return errors.forbidden(&Path::root(""), "windows pods cannot be resized");
    }
    let before = errors.len();
    annotations_and_spec(pod, errors);
    let path = Path::root("spec");
    validate_class(pod, old, &path, errors);
    if !is_supported(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    let (new, old) = (pod.at("spec"), old.at("spec"));
    if CONTAINERS.iter().any(|list| new.list(list).len() != old.list(list).len()) {
        return errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
    validate_removals(new, old, &path, errors);
    let munged = validate_containers(new, old, &path, errors);
    if errors.len() == before && munged != *old {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

/// The QoS class is immutable.
fn validate_class(pod: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let before = match old.str("status.qosClass") {
        "" => qos::class(old.at("spec")),
        class => class,
    };
    if before != qos::class(pod.at("spec")) {
        let shown = Value::from(pod.str("status.qosClass"));
        errors.invalid(path, shown, "Pod QOS Class may not change as a result of resizing");
    }
}

/// A kubelet that reports no container resources does not support resizing.
fn is_supported(pod: &Tree) -> bool {
    let running = pod.list("status.containerStatuses").iter().find(|status| status.at("state").has("running"));
    running.is_none_or(|status| status.has("resources"))
}

fn validate_removals(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(before) = old.get("resources") {
        let at = path.field("resources");
        validate_removal(new.at("resources"), before, &at, errors);
    }
    for list in ["initContainers", "containers"] {
        let path = path.field(list);
        for (index, (new, old)) in new.list(list).iter().zip(old.list(list)).enumerate() {
            if list == "containers" || is_restartable(old) {
                let at = path.index(index);
                validate_removal(new.at("resources"), old.at("resources"), &at.field("resources"), errors);
            }
        }
    }
}

fn validate_removal(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for list in ["requests", "limits"] {
        if old.map(list).keys().any(|name| !new.map(list).contains(name)) {
            errors.forbidden(&path.field(list), &format!("resource {list} cannot be removed"));
        }
    }
}

/// Returns the new spec with the old CPU and memory: any other difference is not allowed.
fn validate_containers(new: &Tree, old: &Tree, path: &Path<'_>, errors: &mut Errors) -> Tree {
    let mut munged = new.clone();
    for (container, before) in munged.list_mut("containers").iter_mut().zip(old.list("containers")) {
        restore_compute(container, before);
        if container != before {
            errors.forbidden(path, "only cpu and memory resources are mutable");
        }
    }
    for (container, before) in munged.list_mut("initContainers").iter_mut().zip(old.list("initContainers")) {
        let restartable = is_restartable(container);
        if restartable {
            restore_compute(container, before);
        }
        if container != before {
            errors.forbidden(
                path,
                if restartable {
                    "only cpu and memory resources for sidecar containers are mutable"
                } else {
                    "resources for non-sidecar init containers are immutable"
                },
            );
        }
    }
    restore_compute(&mut munged, old);
    munged
}

fn restore_compute(tree: &mut Tree, old: &Tree) {
    if !tree.has("resources") {
        return;
    }
    let resources = tree.child("resources");
    for list in ["limits", "requests"] {
        let before = old.at("resources").map(list);
        if before.is_empty() {
            resources.remove(list);
            continue;
        }
        let own = resources.child(list);
        for name in ["cpu", "memory"] {
            match before.get(name) {
                Some(quantity) => own.set(name, quantity.clone()),
                None => {
                    own.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn pod(image: &str, requests: Tree, limits: Tree) -> Tree {
        let resources = tree! { "requests" => requests, "limits" => limits };
        let mut pod = tree! {
            "metadata" => tree! { "name" => "p" },
            "spec" => tree! { "containers" => list![tree! { "name" => "c", "image" => image, "resources" => resources }] },
            "status" => tree! { "qosClass" => "Burstable" },
        };
        crate::podspec::set_pod_defaults(&mut pod);
        pod
    }

    fn check(new: Tree, expected: &[&str]) {
        let old = pod("a:1", tree! { "cpu" => "100m" }, tree! { "cpu" => "200m", "memory" => "64Mi" });
        let mut errors = Errors::new();
        validate(&new, &old, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn resizes_within_the_qos_class() {
        let limits = || tree! { "cpu" => "300m", "memory" => "64Mi" };
        check(pod("a:1", tree! { "cpu" => "150m" }, limits()), &[]);
        check(
            pod("a:1", tree! { "cpu" => "300m", "memory" => "64Mi" }, limits()),
            &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"],
        );
        check(
            pod("a:1", tree! { "cpu" => "100m", "memory" => "64Mi" }, tree! { "cpu" => "300m" }),
            &["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"],
        );
        check(
            pod("b:1", tree! { "cpu" => "150m" }, limits()),
            &["spec: Forbidden: only cpu and memory resources are mutable"],
        );
    }
}
