//! A new node accepts no pods until its kubelet reports that it is ready.

use api::status::Status;
use api::{Tree, tree};

use super::{Attributes, Operation};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    node: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.is("", "Node", Operation::Create) {
        add_taint(node);
    }
    Ok(())
}

fn add_taint(node: &mut Tree) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let taints = node.child("spec").list_entry("taints");
    if !taints.iter().any(|taint| taint.str("key") == KEY && taint.str("effect") == "NoSchedule") {
        taints.push(tree! { "key" => KEY, "effect" => "NoSchedule" });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_taint_is_there_once() {
        let check = |spec: &str, want: usize| {
            let mut node = json(&format!(r#"{{"spec":{spec}}}"#));
            add_taint(&mut node);
            assert_eq!(node.list("spec.taints").len(), want, "{spec}");
        };
        check("{}", 1);
        check(r#"{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]}"#, 1);
        check(r#"{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]}"#, 2);
    }
}
