//! A pod that is bound to a node carries the node's zone and region.

use api::Tree;
use api::status::Status;
use kinds::core::node::KIND as NODE;

use super::{Attributes, Operation};

const LABELS: &[&str] = &["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(crate) fn mutate(
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
    // Each pod is on a different node: decoding it in the shared cache would evict the objects that every write needs.
    if let Some(node) =
        attributes.registry.storage.item("minions", node).filter(|node| node.is_initialized(Some(&NODE)))
    {
        copy_labels(object, |label| node.label(Some(&NODE), label));
    }
    Ok(())
}

fn copy_labels<'a>(object: &mut Tree, of_node: impl Fn(&str) -> Option<&'a str>) {
    for label in LABELS {
        if let Some(value) = of_node(label) {
            object.child("metadata.labels").set(label, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_nodes_place_overwrites_the_pods() {
        let labels = [("topology.kubernetes.io/zone", "z"), ("other", "o")];
        let of_node = |label: &str| labels.iter().find(|(key, _)| *key == label).map(|(_, value)| *value);
        let mut pod = json(r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"x"}}}"#);
        copy_labels(&mut pod, of_node);
        assert_eq!(pod, json(r#"{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}}}"#));
    }
}
