//! A pod that is bound to a node carries the node's zone and region.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation};

const LABELS: &[&str] = &["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.operation != Operation::Create || !attributes.is_kind("", "Pod") {
        return Ok(());
    }
    let node = match attributes.subresource {
        "" => object.str("spec.nodeName"),
        "binding" if object.str("target.kind") == "Node" => object.str("target.name"),
        _ => return Ok(()),
    };
    if let Some(node) = attributes.server.object("minions", node).filter(|_| !node.is_empty()) {
        copy_labels(object, &node);
    }
    Ok(())
}

fn copy_labels(object: &mut Tree, node: &Tree) {
    for label in LABELS {
        if let Some(value) = node.map("metadata.labels").get(label) {
            object.child("metadata.labels").set(label, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_nodes_place_overwrites_the_pods() {
        let node = json(r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"z","other":"o"}}}"#);
        let mut pod = json(r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"x"}}}"#);
        copy_labels(&mut pod, &node);
        assert_eq!(pod, json(r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}}}"#));
    }
}
