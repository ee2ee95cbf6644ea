//! The Scale of an object: the same fields for every kind, which lets one client scale all of them.

use api::field::{Errors, Path};
use api::selector::Selector;
use api::{Tree, tree};

use crate::checks;
use crate::kind::ScalePaths;

/// For the kinds of `apps` and ReplicationController.
pub const REPLICAS: ScalePaths<'static> =
    ScalePaths { spec_replicas: "spec.replicas", status_replicas: "status.replicas", selector: "spec.selector" };

/// The autoscaling/v1 Scale of an object.
pub fn from_object(paths: ScalePaths<'_>, object: &Tree) -> Tree {
    let mut metadata = Tree::map_new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at("metadata").get(key) {
            metadata.set(key, value.clone());
        }
    }
    let mut spec = Tree::map_new();
    if let Some(replicas) = object.int(paths.spec_replicas).filter(|replicas| *replicas != 0) {
        spec.set("replicas", replicas);
    }
    let mut status = tree! { "replicas" => object.int(paths.status_replicas).unwrap_or(0) };
    let selector = selector_text(object.at(paths.selector));
    if !selector.is_empty() {
        status.set("selector", selector);
    }
    tree! {
        "kind" => "Scale",
        "apiVersion" => "autoscaling/v1",
        "metadata" => metadata,
        "spec" => spec,
        "status" => status,
    }
}

/// A LabelSelector has its own keys; anything else is a plain map of labels.
fn selector_text(selector: &Tree) -> String {
    let Some(map) = selector.as_map() else { return selector.as_str().unwrap_or("").to_string() };
    if map.keys().all(|key| matches!(key, "matchLabels" | "matchExpressions")) {
        return Selector::from_object(selector).map(|selector| selector.to_string()).unwrap_or_default();
    }
    Selector::from_labels(map).to_string()
}

/// Applies a Scale to its object; a resourceVersion in it is a precondition.
pub fn apply_to_object(paths: ScalePaths<'_>, scale: &Tree, object: &mut Tree) {
    if let Some((parent, key)) = paths.spec_replicas.rsplit_once('.') {
        object.child(parent).set(key, scale.int("spec.replicas").unwrap_or(0));
    }
    if !scale.str("metadata.resourceVersion").is_empty() {
        let version = scale.at("metadata.resourceVersion").clone();
        object.child("metadata").set("resourceVersion", version);
    }
}

/// Validates everything except the metadata.
pub fn validate(scale: &Tree, errors: &mut Errors) {
    checks::non_negative(scale.at("spec"), "replicas", &Path::root("spec"), errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::deployment;
    use crate::core::replication_controller;

    fn object(selector: Tree) -> Tree {
        tree! {
            "metadata" => tree! { "name" => "s", "uid" => "u", "labels" => tree! { "a" => "b" } },
            "spec" => tree! { "replicas" => 2, "selector" => selector },
        }
    }

    #[test]
    fn prints_both_selector_forms() {
        let cases = [
            (&deployment::KIND, tree! { "matchLabels" => tree! { "a" => "b" } }),
            (&replication_controller::KIND, tree! { "a" => "b" }),
        ];
        for (kind, selector) in cases {
            let scale = from_object(kind.scale.expect("both scale"), &object(selector));
            assert_eq!(scale.at("metadata"), &tree! { "name" => "s", "uid" => "u" });
            assert_eq!(scale.at("spec"), &tree! { "replicas" => 2 });
            assert_eq!(scale.at("status"), &tree! { "replicas" => 0, "selector" => "a=b" });
        }
    }

    #[test]
    fn missing_replicas_mean_zero() {
        let mut changed = object(Tree::Null);
        apply_to_object(REPLICAS, &tree! { "spec" => tree! {} }, &mut changed);
        assert_eq!(changed.int("spec.replicas"), Some(0));
    }
}
