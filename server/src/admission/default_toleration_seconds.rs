//! A pod leaves a node that is lost after five minutes, unless it says otherwise.

use api::status::Status;
use api::{Tree, tree};

use super::{Attributes, Operation};

pub fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let pod = attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update);
    if !pod {
        return Ok(());
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !object.list("spec.tolerations").iter().any(|toleration| tolerates(toleration, key)) {
            object.child("spec").list_entry("tolerations").push(tree! {
                "key" => key, "operator" => "Exists", "effect" => "NoExecute", "tolerationSeconds" => 300,
            });
        }
    }
    Ok(())
}

fn tolerates(toleration: &Tree, key: &str) -> bool {
    let same_key = [key, ""].contains(&toleration.str("key"));
    same_key && ["NoExecute", ""].contains(&toleration.str("effect"))
}
