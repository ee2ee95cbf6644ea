//! AlwaysPullImages: every image is pulled with the pod's own credentials, even if the node already has it.

use api::Tree;
use api::field::{Errors, Path};
use api::status::Status;

use super::{Attributes, Operation, join_errors};

const LISTS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if concerns(attributes, pod, old) {
        set_always(pod);
    }
    Ok(())
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(pod) = pod.filter(|pod| concerns(attributes, pod, old)) else { return Ok(()) };
    let errors = check(pod);
    if errors.is_empty() { Ok(()) } else { Err(attributes.forbidden(join_errors(errors))) }
}

/// An update without a new image is not changed.
fn concerns(attributes: &Attributes<'_>, pod: &Tree, old: Option<&Tree>) -> bool {
    let write = attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update);
    write && old.is_none_or(|old| images(pod).iter().any(|image| !images(old).contains(image)))
}

fn images(pod: &Tree) -> Vec<&str> {
    let containers = LISTS.iter().flat_map(|list| pod.at("spec").list(list)).map(|container| container.str("image"));
    let volumes = pod.list("spec.volumes").iter().filter(|volume| volume.has("image"));
    containers.chain(volumes.map(|volume| volume.str("image.reference"))).collect()
}

fn set_always(pod: &mut Tree) {
    for list in LISTS {
        for container in pod.child("spec").list_mut(list) {
            container.set("imagePullPolicy", "Always");
        }
    }
    for volume in pod.child("spec").list_mut("volumes").iter_mut().filter(|volume| volume.has("image")) {
        volume.child("image").set("pullPolicy", "Always");
    }
}

fn check(pod: &Tree) -> Vec<String> {
    let mut errors = Errors::new();
    let root = Path::root("spec");
    for list in LISTS {
        for (index, container) in pod.at("spec").list(list).iter().enumerate() {
            let policy = container.str("imagePullPolicy");
            if policy != "Always" {
                errors.not_supported(&root.field(list).index(index).field("imagePullPolicy"), policy, &["Always"]);
            }
        }
    }
    errors.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn every_container_pulls_always() {
        let mut pod = json(
            r#"{"spec":{"containers":[{"image":"a","imagePullPolicy":"Never"}],"initContainers":[{"image":"b"}],
            "volumes":[{"name":"v","image":{"reference":"c"}}]}}"#,
        );
        assert_eq!(
            check(&pod),
            [
                "spec.initContainers[0].imagePullPolicy: Unsupported value: \"\": supported values: \"Always\"",
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ]
        );
        set_always(&mut pod);
        assert!(check(&pod).is_empty());
        assert_eq!(pod.list("spec.volumes")[0].str("image.pullPolicy"), "Always");
    }
}
