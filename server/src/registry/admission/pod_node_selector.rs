//! A namespace selects the nodes of its pods: by an annotation, or by the plugin's configuration, which can also
//! restrict the selectors of pods.

use api::selector::Selector;
use api::status::Status;
use api::{Map, Tree};
use thiserror::Error;

use super::setup::{FieldError, Source};
use super::{Attributes, Operation, Settings};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT: &str = "clusterDefaultNodeSelector";

/// Node labels by namespace, and the default for all other namespaces.
#[derive(Default)]
pub(crate) struct Selectors {
    default: Map,
    bounds: Vec<(String, Map)>,
}

pub(super) fn configure(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    let key = "podNodeSelectorPluginConfig";
    source.only("", source.tree, &[key])?;
    for (name, text) in source.tree.map(key).iter() {
        let text = text.as_str().ok_or_else(|| FieldError::new(name, "it must be a text").below(key))?;
        let labels = labels(text).map_err(|error| FieldError::new(name, error).below(key))?;
        if name == DEFAULT {
            settings.node_selectors.default = labels;
        } else {
            settings.node_selectors.bounds.push((name.to_string(), labels));
        }
    }
    Ok(())
}

/// Text that is not a list of labels.
#[derive(Debug, thiserror::Error)]
enum LabelsError {
    #[error("invalid selector: {0:?}")]
    NotPair(String),
    #[error(transparent)]
    Selector(#[from] api::selector::Error),
}

/// `a=b,c=d` as a map.
fn labels(text: &str) -> Result<Map, LabelsError> {
    let mut map = Map::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| LabelsError::NotPair(pair.to_string()))?;
        map.insert(key.trim(), value.trim());
    }
    Selector::parse(text)?;
    Ok(map)
}

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !attributes.is("", "Pod", Operation::Create) {
        return Ok(());
    }
    let own = namespace_selector(attributes)?;
    merge(pod, &own).map_err(|why| attributes.forbidden(why))?;
    check(attributes, pod, &own)
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    match pod.filter(|_| attributes.is("", "Pod", Operation::Create)) {
        Some(pod) => check(attributes, pod, &namespace_selector(attributes)?),
        None => Ok(()),
    }
}

fn namespace_selector(attributes: &Attributes<'_>) -> Result<Map, Status> {
    let namespace = attributes.registry.storage.object("namespaces", attributes.namespace);
    let namespace = namespace.ok_or_else(|| Status::not_found("", "namespaces", attributes.namespace))?;
    match namespace.map("metadata.annotations").get(ANNOTATION).and_then(Tree::as_str) {
        Some(text) => labels(text).map_err(|why| attributes.forbidden(&why)),
        None => Ok(attributes.registry.admission.settings.node_selectors.default.clone()),
    }
}

fn check(attributes: &Attributes<'_>, pod: &Tree, own: &Map) -> Result<(), Status> {
    let bounds = &attributes.registry.admission.settings.node_selectors.bounds;
    let bound = bounds.iter().find(|(namespace, _)| namespace == attributes.namespace).map(|(_, bound)| bound);
    check_labels(pod.map("spec.nodeSelector"), own, bound).map_err(|why| attributes.forbidden(why))
}

/// Why the node selector of a pod is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum SelectorError {
    #[error("pod node label selector conflicts with its namespace node label selector")]
    Namespace,
    #[error("pod node label selector labels conflict with its namespace whitelist")]
    Whitelist,
}

fn merge(pod: &mut Tree, own: &Map) -> Result<(), SelectorError> {
    check_labels(pod.map("spec.nodeSelector"), own, None)?;
    for (key, value) in own.iter() {
        pod.child("spec.nodeSelector").set(key, value.clone());
    }
    Ok(())
}

/// The pod's labels must not contradict the labels of the namespace, and must be within its whitelist if it has one.
fn check_labels(pod: &Map, own: &Map, bound: Option<&Map>) -> Result<(), SelectorError> {
    if own.iter().any(|(key, value)| pod.get(key).is_some_and(|given| given != value)) {
        return Err(SelectorError::Namespace);
    }
    match bound.filter(|bound| !bound.is_empty()) {
        Some(bound) if pod.iter().any(|(key, value)| bound.get(key) != Some(value)) => Err(SelectorError::Whitelist),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_namespace_has_the_last_word() {
        let check = |pod: &str, own: &str, bound: &str, want: Result<(), SelectorError>| {
            let (pod, own, bound) = (json(pod), labels(own).expect("labels"), labels(bound).expect("labels"));
            assert_eq!(check_labels(pod.map("s"), &own, Some(&bound)), want);
        };
        check(r#"{"s":{"a":"b"}}"#, "a=b", "", Ok(()));
        check(r#"{"s":{"a":"b"}}"#, "a=c", "", Err(SelectorError::Namespace));
        check(r#"{"s":{"a":"b"}}"#, "", "a=b,c=d", Ok(()));
        check(r#"{"s":{"x":"y"}}"#, "", "a=b", Err(SelectorError::Whitelist));
        assert!(labels("a").is_err());
        let mut pod = json(r#"{"spec":{"nodeSelector":{"c":"d"}}}"#);
        merge(&mut pod, &labels("a=b").expect("labels")).expect("no conflict");
        assert_eq!(pod.at("spec.nodeSelector"), &json(r#"{"a":"b","c":"d"}"#));
    }
}
