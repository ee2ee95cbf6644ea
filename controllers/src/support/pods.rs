//! What a pod is to those who run it.

use api::{Tree, list, tree};

pub fn is_ready(pod: &Tree) -> bool {
    pod.list("status.conditions").iter().any(|c| c.str("type") == "Ready" && c.str("status") == "True")
}

pub fn ready_since(pod: &Tree) -> Option<String> {
    let mut conditions = pod.list("status.conditions").iter();
    conditions.find(|c| c.str("type") == "Ready").map(|c| c.str("lastTransitionTime").to_string())
}

pub fn from_template(owner: &Tree, api_version: &str, kind: &str, template: &Tree) -> Tree {
    let meta = template.at("metadata");
    let mut metadata = tree! { "generateName" => format!("{}-", owner.str("metadata.name")) };
    for field in ["labels", "annotations", "finalizers"] {
        if meta.has(field) {
            metadata.set(field, meta.at(field).clone());
        }
    }
    let reference = tree! {
        "apiVersion" => api_version,
        "kind" => kind,
        "name" => owner.str("metadata.name"),
        "uid" => owner.str("metadata.uid"),
        "controller" => true,
        "blockOwnerDeletion" => true,
    };
    metadata.set("ownerReferences", list![reference]);
    tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => metadata, "spec" => template.at("spec").clone() }
}
