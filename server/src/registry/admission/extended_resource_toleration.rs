//! A pod that requests an extended resource tolerates the nodes that are dedicated to it.

use api::status::Status;
use api::{Tree, tree};

use super::{Attributes, Operation};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update) {
        add_tolerations(pod);
    }
    Ok(())
}

fn add_tolerations(pod: &mut Tree) {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| pod.at("spec").list(list));
    let requests = containers.flat_map(|container| container.map("resources.requests").keys());
    let mut names: Vec<String> =
        requests.filter(|name| kinds::resources::is_extended(name)).map(str::to_string).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let toleration = tree! { "key" => name, "operator" => "Exists", "effect" => "NoSchedule" };
        if !pod.list("spec.tolerations").contains(&toleration) {
            pod.child("spec").list_entry("tolerations").push(toleration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn each_extended_resource_is_tolerated_once() {
        let mut pod = json(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","b.io/gpu":"1"}}}],
            "initContainers":[{"resources":{"requests":{"a.io/x":"1","b.io/gpu":"1"}}}]}}"#,
        );
        for _ in 0..2 {
            add_tolerations(&mut pod);
            let keys: Vec<&str> = pod.list("spec.tolerations").iter().map(|toleration| toleration.str("key")).collect();
            assert_eq!(keys, ["a.io/x", "b.io/gpu"]);
        }
    }
}
