//! The pods and containers that `debug` creates, as plain objects.

use api::{Tree, list, tree};

use super::profiles::{Keep, Profile, Style, container_mut};
use crate::error::{Error, Result, message};

/// What the flags say about the container.
#[derive(Debug, Default)]
pub(super) struct Debug {
    pub(super) profile: Option<Profile>,
    pub(super) keep: Keep,
    /// Empty for a generated name.
    pub(super) container: String,
    pub(super) image: String,
    pub(super) pull_policy: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) command: Vec<String>,
    /// The command replaces the arguments of the image, not its entry point.
    pub(super) is_arguments: bool,
    pub(super) stdin: bool,
    pub(super) tty: bool,
    pub(super) target: String,
    pub(super) copy_to: String,
    pub(super) set_images: Vec<(String, String)>,
    pub(super) shares_processes: Option<bool>,
    pub(super) is_same_node: bool,
    /// A partial container that is merged into the one that the profile results in.
    pub(super) custom: Option<Tree>,
}

impl Debug {
    /// A pod with an ephemeral container at the end.
    pub(super) fn with_ephemeral_container(&self, pod: &Tree, name: &str) -> Result<Tree> {
        let mut container = self.new_container(name);
        if !self.target.is_empty() {
            container.set("targetContainerName", &self.target);
        }
        let mut pod = pod.clone();
        pod.child("spec").list_entry("ephemeralContainers").push(container);
        self.finish(pod, name, Style::Ephemeral, "ephemeralContainers")
    }

    /// A pod on a node.
    pub(super) fn node_pod(&self, pod_name: &str, node: &str, name: &str) -> Result<Tree> {
        let spec = tree! {
            "containers" => list![self.new_container(name)], "nodeName" => node, "restartPolicy" => "Never",
            "tolerations" => list![tree! { "operator" => "Exists" }],
        };
        let labels = tree! { "app.kubernetes.io/managed-by" => "kubectl-debug" };
        let metadata = tree! { "name" => pod_name, "labels" => labels };
        let pod = tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => metadata, "spec" => spec };
        self.finish(pod, name, Style::Node, "containers")
    }

    /// A copy of a pod with a changed or a new container. The name is empty if only images are replaced.
    pub(super) fn copied_pod(&self, pod: &Tree, new_name: impl FnOnce() -> String) -> Result<(Tree, String)> {
        let mut copy = self.plain_copy(pod);
        let mut name = self.container.clone();
        if container_mut(&mut copy, &name).is_none() {
            if self.image.is_empty() && !self.set_images.is_empty() {
                return Ok((copy, String::new()));
            }
            if self.image.is_empty() {
                return message("you must specify image when creating new container");
            }
            if name.is_empty() {
                name = new_name();
            }
            let container = tree! { "name" => &name, "terminationMessagePolicy" => "File" };
            copy.child("spec").list_entry("containers").push(container);
        }
        if let Some(container) = container_mut(&mut copy, &name) {
            self.change_container(container);
        }
        let copy = self.finish(copy, &name, Style::Copy, "containers")?;
        Ok((copy, name))
    }

    fn plain_copy(&self, pod: &Tree) -> Tree {
        let mut metadata = tree! { "name" => &self.copy_to, "namespace" => pod.str("metadata.namespace") };
        for field in ["annotations", "labels"] {
            if pod.at("metadata").has(field) {
                metadata.set(field, pod.at("metadata").at(field).clone());
            }
        }
        let mut spec = pod.at("spec").clone();
        spec.remove("ephemeralContainers");
        if let Some(shares) = self.shares_processes {
            spec.set("shareProcessNamespace", shares);
        }
        if !self.is_same_node {
            spec.remove("nodeName");
        }
        for container in spec.list_mut("containers") {
            let of = |name: &str| self.set_images.iter().find(|(of, _)| of == name).map(|(_, image)| image.clone());
            if let Some(image) = of(container.str("name")).or_else(|| of("*")).filter(|image| !image.is_empty()) {
                container.set("image", image);
            }
        }
        tree! { "apiVersion" => "v1", "kind" => "Pod", "metadata" => metadata, "spec" => spec }
    }

    fn new_container(&self, name: &str) -> Tree {
        let mut container = tree! { "name" => name, "terminationMessagePolicy" => "File" };
        self.change_container(&mut container);
        container
    }

    fn change_container(&self, container: &mut Tree) {
        if !self.command.is_empty() {
            let words: Vec<Tree> = self.command.iter().map(Tree::from).collect();
            if self.is_arguments {
                container.set("args", words);
            } else {
                container.set("command", words);
                container.remove("args");
            }
        }
        if !self.env.is_empty() {
            let variable = |(name, value): &(String, String)| tree! { "name" => name, "value" => value };
            container.set("env", self.env.iter().map(variable).collect::<Vec<_>>());
        }
        for (field, text) in [("image", &self.image), ("imagePullPolicy", &self.pull_policy)] {
            if !text.is_empty() {
                container.set(field, text);
            }
        }
        for (field, is_on) in [("stdin", self.stdin), ("tty", self.tty)] {
            if is_on {
                container.set(field, true);
            } else {
                container.remove(field);
            }
        }
    }

    /// Applies the profile, and the user's own changes of it.
    fn finish(&self, mut pod: Tree, name: &str, style: Style, list: &str) -> Result<Tree> {
        if let Some(profile) = self.profile {
            profile.apply(&mut pod, name, style, self.keep);
        }
        let Some(custom) = &self.custom else { return Ok(pod) };
        if !pod.at("spec").list(list).iter().any(|container| container.str("name") == name) {
            return message(format!("unable to find the {name} container in the pod {}", pod.str("metadata.name")));
        }
        let mut container = custom.clone();
        container.set("name", name);
        let mut spec = tree! {};
        spec.set(list, list![container]);
        let Some(ty) = api::schema::type_of("", "v1", "Pod") else { return Ok(pod) };
        api::patch::strategic(pod, &tree! { "spec" => spec }, ty)
            .map_err(|error| Error::new(format!("error merging the custom profile: {error:?}")))
    }
}

/// Why a profile's capabilities may have no effect: the whole pod has another user than root.
pub(super) fn root_warning(pod: &Tree, container: &Tree) -> Option<&'static str> {
    let has_other_user = pod.int("spec.securityContext.runAsUser").is_some_and(|user| user != 0);
    let security = container.at("securityContext");
    let is_root = security.int("runAsUser") == Some(0);
    let has_rights = security.bool("privileged") || !security.list("capabilities.add").is_empty();
    (has_other_user && !is_root && has_rights).then_some(
        "Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile may not \
         work. Please consider using \"--custom\" with a custom profile that specifies \"securityContext.runAsUser: 0\".",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Tree {
        tree! {
            "metadata" => tree! { "name" => "a", "namespace" => "n", "uid" => "x", "labels" => tree! { "l" => "1" } },
            "spec" => tree! {
                "nodeName" => "node",
                "containers" => list![
                    tree! { "name" => "one", "image" => "1", "args" => list!["x"], "tty" => true },
                    tree! { "name" => "two", "image" => "2" },
                ],
                "ephemeralContainers" => list![tree! { "name" => "old" }],
            },
            "status" => tree! { "phase" => "Running" },
        }
    }

    fn debug() -> Debug {
        Debug { profile: Some(Profile::General), copy_to: "b".into(), image: "dbg".into(), ..Debug::default() }
    }

    #[test]
    fn a_copy_gets_a_new_container() {
        let (copy, name) = debug().copied_pod(&pod(), || "debugger-x".into()).expect("a copy");
        assert_eq!(
            (copy.str("metadata.name"), copy.str("metadata.namespace"), name.as_str()),
            ("b", "n", "debugger-x")
        );
        assert!(copy.at("metadata.uid").is_null() && copy.at("status").is_null());
        assert!(copy.at("spec.nodeName").is_null() && copy.at("spec.ephemeralContainers").is_null());
        assert_eq!(copy.list("spec.containers")[2].str("image"), "dbg");
    }

    #[test]
    fn a_copy_can_change_a_container_and_images() {
        let flags = Debug {
            container: "one".into(),
            image: String::new(),
            command: vec!["sh".into()],
            set_images: vec![("*".into(), "all".into()), ("two".into(), "b".into())],
            is_same_node: true,
            shares_processes: Some(false),
            ..debug()
        };
        let (copy, name) = flags.copied_pod(&pod(), || unreachable!("it has a name")).expect("a copy");
        let containers = copy.list("spec.containers");
        assert_eq!((name.as_str(), containers[0].str("image"), containers[1].str("image")), ("one", "all", "b"));
        assert_eq!(containers[0].list("command"), [Tree::from("sh")]);
        assert!(containers[0].at("args").is_null() && containers[0].at("tty").is_null());
        assert_eq!(copy.str("spec.nodeName"), "node");
        assert_eq!(copy.at("spec.shareProcessNamespace"), &Tree::Bool(false));
        let none = Debug { set_images: Vec::new(), container: "three".into(), image: String::new(), ..debug() };
        assert!(none.copied_pod(&pod(), String::new).is_err());
        let images = Debug { container: String::new(), ..flags };
        assert_eq!(images.copied_pod(&pod(), String::new).expect("a copy").1, "");
    }

    #[test]
    fn custom_profiles_are_merged_by_name() {
        let custom = tree! { "securityContext" => tree! { "runAsUser" => 0 }, "env" => list![tree! { "name" => "A", "value" => "1" }] };
        let flags =
            Debug { custom: Some(custom), env: vec![("B".into(), "2".into())], target: "one".into(), ..debug() };
        let pod = flags.with_ephemeral_container(&pod(), "look").expect("a pod");
        let container = &pod.list("spec.ephemeralContainers")[1];
        assert_eq!(container.str("targetContainerName"), "one");
        assert_eq!(container.int("securityContext.runAsUser"), Some(0));
        assert_eq!(container.list("securityContext.capabilities.add"), [Tree::from("SYS_PTRACE")]);
        assert_eq!(container.list("env").len(), 2);
    }

    #[test]
    fn capabilities_without_root_are_warned_about() {
        let of = |user: i64| tree! { "spec" => tree! { "securityContext" => tree! { "runAsUser" => user } } };
        let privileged = tree! { "securityContext" => tree! { "privileged" => true } };
        assert!(root_warning(&of(5), &privileged).is_some());
        assert!(root_warning(&of(0), &privileged).is_none());
        assert!(root_warning(&tree! {}, &privileged).is_none());
        assert!(root_warning(&of(5), &tree! {}).is_none());
    }
}
