//! RuntimeClass: a pod gets the overhead and the scheduling constraints of its runtime class.

use std::sync::Arc;

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation, tolerations};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    match find(attributes, Some(pod))? {
        Some(class) => apply_class(pod, &class).map_err(|why| attributes.forbidden(&why)),
        None => Ok(()),
    }
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !attributes.is("", "Pod", Operation::Create) {
        return Ok(());
    }
    let class = find(attributes, pod)?.unwrap_or_default();
    pod.map_or(Ok(()), |pod| check_overhead(pod, &class)).map_err(|why| attributes.forbidden(why))
}

fn find(attributes: &Attributes<'_>, pod: Option<&Tree>) -> Result<Option<Arc<Tree>>, Status> {
    let name = pod.map_or("", |pod| pod.str("spec.runtimeClassName"));
    if !attributes.is("", "Pod", Operation::Create) || name.is_empty() {
        return Ok(None);
    }
    let missing = || attributes.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"));
    attributes.registry.storage.object("runtimeclasses", name).ok_or_else(missing).map(Some)
}

/// Why a pod does not fit its runtime class.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ClassError {
    #[error("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
    Overhead,
    #[error("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")]
    NoOverhead,
    #[error("conflict: runtimeClass.scheduling.nodeSelector[{key}] = {class}; pod.spec.nodeSelector[{key}] = {pod}")]
    NodeSelector { key: String, class: String, pod: String },
}

fn apply_class(pod: &mut Tree, class: &Tree) -> Result<(), ClassError> {
    let spec = pod.child("spec");
    if class.has("overhead") {
        let overhead = class.at("overhead.podFixed");
        if spec.has("overhead") && !same_amounts(spec.at("overhead"), overhead) {
            return Err(ClassError::Overhead);
        }
        spec.set("overhead", overhead.clone());
    }
    if class.has("scheduling") {
        merge_selector(spec, class)?;
        merge_tolerations(spec, class.list("scheduling.tolerations"));
    }
    Ok(())
}

fn check_overhead(pod: &Tree, class: &Tree) -> Result<(), ClassError> {
    let given = pod.at("spec.overhead");
    if class.has("overhead") {
        return if same_amounts(given, class.at("overhead.podFixed")) { Ok(()) } else { Err(ClassError::Overhead) };
    }
    if given.is_null() {
        return Ok(());
    }
    Err(ClassError::NoOverhead)
}

/// The same resources in the same amounts, however they are written.
fn same_amounts(a: &Tree, b: &Tree) -> bool {
    let empty = api::Map::new();
    let (a, b) = (a.as_map().unwrap_or(&empty), b.as_map().unwrap_or(&empty));
    a.len() == b.len()
        && a.iter().all(|(key, value)| {
            b.get(key).is_some_and(|other| kinds::resources::read(value) == kinds::resources::read(other))
        })
}

fn merge_selector(spec: &mut Tree, class: &Tree) -> Result<(), ClassError> {
    for (key, value) in class.map("scheduling.nodeSelector").iter() {
        let value = value.as_str().unwrap_or("");
        let given = spec.at("nodeSelector").get(key).and_then(Tree::as_str);
        if let Some(given) = given.filter(|given| *given != value) {
            let (key, class, pod) = (key.to_string(), value.to_string(), given.to_string());
            return Err(ClassError::NodeSelector { key, class, pod });
        }
        spec.child("nodeSelector").set(key, value);
    }
    Ok(())
}

fn merge_tolerations(spec: &mut Tree, more: &[Tree]) {
    let merged = tolerations::merge(spec.list("tolerations"), more);
    if !merged.is_empty() {
        spec.set("tolerations", merged);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_class_is_merged_into_the_pod() {
        let class = json(
            r#"{"overhead":{"podFixed":{"cpu":"10m"}},"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"x","operator":"Exists"}]}}"#,
        );
        let check = |spec: &str, want: Result<&str, &str>| {
            let mut pod = json(&format!(r#"{{"spec":{spec}}}"#));
            let got = apply_class(&mut pod, &class).map(|()| pod.at("spec").clone());
            assert_eq!(got.map_err(|error| error.to_string()), want.map(json).map_err(str::to_string));
        };
        check(
            "{}",
            Ok(
                r#"{"overhead":{"cpu":"10m"},"nodeSelector":{"a":"b"},"tolerations":[{"key":"x","operator":"Exists"}]}"#,
            ),
        );
        check(
            r#"{"overhead":{"cpu":"0.01"},"nodeSelector":{"c":"d"},"tolerations":[{"key":"x","operator":"Equal","value":"v"}]}"#,
            Ok(
                r#"{"overhead":{"cpu":"10m"},"nodeSelector":{"a":"b","c":"d"},"tolerations":[{"key":"x","operator":"Exists"}]}"#,
            ),
        );
        check(
            r#"{"overhead":{"cpu":"20m"}}"#,
            Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        );
        check(
            r#"{"nodeSelector":{"a":"c"}}"#,
            Err("conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"),
        );
    }

    #[test]
    fn an_overhead_needs_a_class() {
        let pod = json(r#"{"spec":{"overhead":{"cpu":"1"}}}"#);
        assert!(check_overhead(&pod, &json("{}")).is_err());
        assert!(check_overhead(&json(r#"{"spec":{}}"#), &json("{}")).is_ok());
    }
}
