//! A new node takes no pods until its kubelet says that it is ready.

use api::status::Status;
use api::{Tree, tree};

use super::{Attributes, Operation};

pub fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !attributes.is("", "Node", Operation::Create) {
        return Ok(());
    }
    let taints = object.child("spec").list_entry("taints");
    let is_there =
        |taint: &Tree| taint.str("key") == "node.kubernetes.io/not-ready" && taint.str("effect") == "NoSchedule";
    if !taints.iter().any(is_there) {
        taints.push(tree! { "key" => "node.kubernetes.io/not-ready", "effect" => "NoSchedule" });
    }
    Ok(())
}
