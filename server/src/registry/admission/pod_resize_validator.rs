//! A pod on a node is not resized beyond what the node has.

use api::Tree;
use api::status::{Cause, Status};
use kinds::resources::read;

use super::{Attributes, Operation};

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let (Some(pod), Some(old)) = (pod, old) else { return Ok(()) };
    let resize = attributes.operation == Operation::Update && attributes.subresource == "resize";
    let node_name = pod.str("spec.nodeName");
    let unchanged = pod.at("spec") == old.at("spec");
    if !resize || !attributes.is_kind("", "Pod") || node_name.is_empty() || unchanged {
        return Ok(());
    }
    let missing = || attributes.forbidden(format!("node {node_name:?} not found"));
    let node = attributes.registry.storage.object("minions", node_name).ok_or_else(missing)?;
    check(pod, &node).map_err(|(cause, why)| with_cause(attributes.forbidden(&why), cause))
}

/// Clients distinguish the two rejections by their cause.
fn with_cause(mut status: Status, cause: &str) -> Status {
    if let Some(details) = &mut status.details {
        details.causes = vec![Cause { reason: cause.to_string(), message: String::new(), field: String::new() }];
    }
    status
}

fn check(pod: &Tree, node: &Tree) -> Result<(), (&'static str, String)> {
    let requests = kinds::podspec::total::pod_total(pod, "requests");
    let mut lacking = Vec::new();
    for (name, scale) in [("cpu", -3), ("memory", 0)] {
        let requested = requests.get(name).map_or(0, |value| read(value).scaled(scale));
        let there = node.map("status.allocatable").get(name).map_or(0, |value| read(value).scaled(scale));
        if requested > there {
            lacking.push(format!("{name}, requested: {requested}, allocatable: {there}"));
        }
    }
    if !lacking.is_empty() {
        let why = format!("Node didn't have enough allocatable resources: {}", lacking.join("; "));
        return Err(("NodeCapacity", why));
    }
    let os = node.map("metadata.labels").str("kubernetes.io/os");
    if os != "linux" {
        let name = node.str("metadata.name");
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
        return Err(("UnsupportedPlatform", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::check;

    #[test]
    fn a_pod_stays_below_its_nodes_allocatable() {
        let node = |os: &str| {
            json(&format!(
                r#"{{"metadata":{{"name":"n","labels":{{"kubernetes.io/os":"{os}"}}}},"status":{{"allocatable":{{"cpu":"2","memory":"1Gi"}}}}}}"#
            ))
        };
        let pod = |cpu: &str| {
            json(&format!(r#"{{"spec":{{"containers":[{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}"#))
        };
        assert_eq!(check(&pod("2"), &node("linux")), Ok(()));
        assert_eq!(
            check(&pod("2500m"), &node("linux")),
            Err((
                "NodeCapacity",
                "Node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000".to_string()
            ))
        );
        assert!(check(&pod("1"), &node("windows")).is_err());
    }
}
