//! Every active namespace has a ConfigMap with the cluster CA bundle.

use api::{Tree, tree};

use crate::service_account::plan::is_active;

pub(super) const NAME: &str = "kube-root-ca.crt";
const ABOUT: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Keep,
    Create(Tree),
    Update(Tree),
}

pub(super) fn plan(namespace: Option<&Tree>, there: Option<&Tree>, root_ca: &str) -> Plan {
    if !namespace.is_some_and(is_active) {
        return Plan::Keep;
    }
    let data = tree! { "ca.crt" => root_ca };
    let Some(there) = there else {
        let mut annotations = tree! {};
        annotations.set(ABOUT, TEXT);
        return Plan::Create(tree! {
            "apiVersion" => "v1",
            "kind" => "ConfigMap",
            "metadata" => tree! { "name" => NAME, "annotations" => annotations },
            "data" => data,
        });
    };
    if *there.at("data") == data && !there.map("metadata.annotations").str(ABOUT).is_empty() {
        return Plan::Keep;
    }
    let mut changed = there.clone();
    changed.set("apiVersion", "v1");
    changed.set("kind", "ConfigMap");
    changed.set("data", data);
    changed.child("metadata.annotations").set(ABOUT, TEXT);
    Plan::Update(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintains_the_config_map() {
        let namespace = tree! { "metadata" => tree! {}, "status" => tree! { "phase" => "Active" } };
        assert_eq!(plan(None, None, "ca"), Plan::Keep);
        let Plan::Create(made) = plan(Some(&namespace), None, "ca") else { panic!("it is made") };
        assert_eq!(plan(Some(&namespace), Some(&made), "ca"), Plan::Keep);
        let Plan::Update(changed) = plan(Some(&namespace), Some(&made), "other") else { panic!("it is changed") };
        assert_eq!(changed.map("data").str("ca.crt"), "other");
        let mut bare = made.clone();
        bare.remove_at("metadata.annotations");
        assert_eq!(plan(Some(&namespace), Some(&bare), "ca"), Plan::Update(made));
    }
}
