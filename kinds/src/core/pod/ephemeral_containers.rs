//! The ephemeralcontainers subresource of pods: containers added to a running pod for debugging, which cannot be
//! removed.

use api::Tree;
use api::field::{Errors, Path};

use super::validate::annotations_and_spec;
use crate::internal;
use crate::kind::{Context, bump_generation, keep_old};
use crate::podspec::annotations;
use crate::prepare;

/// Keeps everything except the ephemeral containers.
pub fn prepare(pod: &mut Tree, old: &Tree, _: &Context<'_>) {
    let containers = pod.at_mut("spec.ephemeralContainers").map(Tree::take);
    keep_old(pod, old, "spec");
    keep_old(pod, old, "status");
    prepare::keep_meta(pod, old);
    let spec = pod.child("spec");
    match containers {
        Some(containers) => spec.set("ephemeralContainers", containers),
        None => {
            spec.remove("ephemeralContainers");
        }
    }
    bump_generation(pod, old, &["spec"]);
}

/// Validates an update of the ephemeral containers.
pub fn validate(pod: &Tree, old: &Tree, errors: &mut Errors) {
    if old.map("metadata.annotations").contains(annotations::MIRROR) {
        return errors.forbidden(&Path::root(""), "static pods do not support ephemeral containers");
    }
    annotations_and_spec(pod, errors);
    let path = Path::root("spec");
    let path = path.field("ephemeralContainers");
    for before in old.list("spec.ephemeralContainers") {
        let name = before.str("name");
        let now = pod.list("spec.ephemeralContainers").iter().find(|now| now.str("name") == name);
        match now {
            None => {
                let text = format!("existing ephemeral containers \"{name}\" may not be removed\n");
                errors.forbidden(&path, &text);
            }
            Some(now) if now != before => {
                let difference = internal::difference(before, now, "EphemeralContainer");
                let text = format!("existing ephemeral containers \"{name}\" may not be changed\n{difference}");
                errors.forbidden(&path, &text);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::User;
    use api::{list, tree};

    fn pod(containers: Tree) -> Tree {
        let mut pod = tree! {
            "metadata" => tree! { "name" => "p", "generation" => 1 },
            "spec" => tree! {
                "containers" => list![tree! { "name" => "c", "image" => "app:1", "resources" => tree! {} }],
                "ephemeralContainers" => containers,
            },
        };
        crate::podspec::set_pod_defaults(&mut pod);
        pod
    }

    fn debug(name: &str, image: &str) -> Tree {
        tree! { "name" => name, "image" => image, "resources" => tree! {} }
    }

    #[test]
    fn only_adds_containers() {
        let (mut new, old) = (pod(list![debug("d", "busybox")]), pod(Tree::Null));
        new.child("spec").list_mut("containers")[0].set("image", "other");
        let user = User::default();
        prepare(&mut new, &old, &Context { now: 0, user: &user });
        assert_eq!(new.list("spec.containers"), old.list("spec.containers"));
        assert_eq!(new.int("metadata.generation"), Some(2));
        let mut errors = Errors::new();
        validate(&new, &old, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn existing_containers_are_immutable() {
        let old = pod(list![debug("d", "busybox:1")]);
        let check = |new: Tree, text: &str| {
            let mut errors = Errors::new();
            validate(&new, &old, &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts.len(), 1, "{texts:?}");
            assert!(texts[0].starts_with(text), "{texts:?}");
        };
        let path = "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\"";
        check(pod(Tree::Null), &format!("{path} may not be removed\n"));
        check(
            pod(list![debug("d", "other:1")]),
            &format!(
                "{path} may not be changed\n@@ -1,6 +1,6 @@\n {{\n  \"Name\": \"d\",\n- \"Image\": \"busybox:1\",\n+ \"Image\": \"other:1\",\n"
            ),
        );
    }
}
