//! PodTolerationRestriction: a namespace, or the plugin's configuration, adds tolerations to new pods and limits the
//! tolerations of all pods.

use api::status::Status;
use api::{Tree, tree};
use kinds::podspec::qos;

use super::setup::{FieldError, Source};
use super::{Attributes, Operation, Settings, tolerations};

const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// The default for namespaces without annotations.
#[derive(Default)]
pub(crate) struct Restriction {
    default: Vec<Tree>,
    whitelist: Vec<Tree>,
}

pub(super) fn configure(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    source.expect(&["podtolerationrestriction.admission.k8s.io/v1alpha1"], "Configuration")?;
    source.only("", source.tree, &["apiVersion", "kind", "default", "whitelist"])?;
    settings.tolerations.default = source.tree.list("default").to_vec();
    settings.tolerations.whitelist = source.tree.list("whitelist").to_vec();
    Ok(())
}

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let mut extra = Vec::new();
    if attributes.operation == Operation::Create {
        let own = of_namespace(attributes, DEFAULT)?;
        extra = own.unwrap_or_else(|| attributes.registry.admission.settings.tolerations.default.clone());
    }
    add(pod, extra);
    check(attributes, pod)
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    pod.filter(|_| concerns(attributes)).map_or(Ok(()), |pod| check(attributes, pod))
}

fn concerns(attributes: &Attributes<'_>) -> bool {
    attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update)
}

/// A pod with a memory request stays on a node with memory pressure.
fn add(pod: &mut Tree, mut extra: Vec<Tree>) {
    if qos::class(pod.at("spec")) != "BestEffort" {
        let key = "node.kubernetes.io/memory-pressure";
        extra.push(tree! { "key" => key, "operator" => "Exists", "effect" => "NoSchedule" });
    }
    if !extra.is_empty() {
        let merged = tolerations::merge(pod.list("spec.tolerations"), &extra);
        pod.child("spec").set("tolerations", merged);
    }
}

fn check(attributes: &Attributes<'_>, pod: &Tree) -> Result<(), Status> {
    let (list, scope) = match of_namespace(attributes, WHITELIST)? {
        Some(list) => (list, "namespace"),
        None => (attributes.registry.admission.settings.tolerations.whitelist.clone(), "cluster"),
    };
    if list.is_empty() || tolerations::are_covered(pod.list("spec.tolerations"), &list) {
        return Ok(());
    }
    Err(attributes.forbidden(format!(
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
    )))
}

/// The list in an annotation of the namespace; None without the annotation.
fn of_namespace(attributes: &Attributes<'_>, annotation: &str) -> Result<Option<Vec<Tree>>, Status> {
    let namespace = attributes.registry.storage.object("namespaces", attributes.namespace).unwrap_or_default();
    match namespace.map("metadata.annotations").get(annotation).and_then(Tree::as_str) {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => match api::json::decode(text.as_bytes()) {
            Ok(Tree::List(list)) => Ok(Some(list)),
            Ok(_) => Err(attributes.forbidden(format!("namespace annotation {annotation} is not a list"))),
            Err(error) => Err(attributes.forbidden(format!("namespace annotation {annotation}: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn tolerations_are_added_once() {
        let mut pod = json(r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}"#);
        for _ in 0..2 {
            add(&mut pod, vec![json(r#"{"key":"a","operator":"Exists"}"#)]);
            let keys: Vec<&str> = pod.list("spec.tolerations").iter().map(|toleration| toleration.str("key")).collect();
            assert_eq!(keys.len(), 2, "{keys:?}");
        }
        let wide = [json(r#"{"operator":"Exists"}"#)];
        assert!(tolerations::are_covered(pod.list("spec.tolerations"), &wide));
        assert!(!tolerations::are_covered(pod.list("spec.tolerations"), &[json(r#"{"key":"a","operator":"Exists"}"#)]));
    }
}
