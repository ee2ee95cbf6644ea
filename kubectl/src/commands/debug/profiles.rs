//! Profiles: what a debug container may do, and what a copied pod keeps.

use api::{Tree, list, tree};

/// How a container for debugging gets to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// An ephemeral container of the pod itself.
    Ephemeral,
    /// A container of a copy of the pod.
    Copy,
    /// A pod on the node.
    Node,
}

/// A profile of `--profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Legacy,
    General,
    Baseline,
    Restricted,
    Netadmin,
    Sysadmin,
}

/// What a copied pod keeps of the original.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Keep {
    pub(super) labels: bool,
    pub(super) annotations: bool,
    pub(super) liveness: bool,
    pub(super) readiness: bool,
    pub(super) startup: bool,
    pub(super) init_containers: bool,
}

impl Profile {
    /// The profile with a name.
    pub(super) fn parse(name: &str) -> Option<Profile> {
        Some(match name {
            "legacy" => Profile::Legacy,
            "general" => Profile::General,
            "baseline" => Profile::Baseline,
            "restricted" => Profile::Restricted,
            "netadmin" => Profile::Netadmin,
            "sysadmin" => Profile::Sysadmin,
            _ => return None,
        })
    }

    /// Changes a pod and its container of this name.
    pub(super) fn apply(self, pod: &mut Tree, name: &str, style: Style, keep: Keep) {
        self.secure(pod, name, style);
        match style {
            Style::Ephemeral => {}
            Style::Copy if self == Profile::Legacy => drop(pod.child("metadata").remove("labels")),
            Style::Copy => {
                keep.apply(pod);
                pod.child("spec").set_default("shareProcessNamespace", true);
            }
            Style::Node => {
                if matches!(self, Profile::Legacy | Profile::General | Profile::Sysadmin) {
                    mount_root(pod, name);
                }
                if !matches!(self, Profile::Baseline | Profile::Restricted) {
                    let spec = pod.child("spec");
                    ["hostNetwork", "hostPID", "hostIPC"].iter().for_each(|field| spec.set(field, true));
                }
            }
        }
    }

    /// Sets the security context of the container.
    fn secure(self, pod: &mut Tree, name: &str, style: Style) {
        let Some(container) = container_mut(pod, name) else { return };
        match (self, style) {
            (Profile::Legacy, _) => {}
            (Profile::General, Style::Node) | (Profile::Baseline, _) => drop(container.remove("securityContext")),
            (Profile::General, _) => add_capabilities(container, &["SYS_PTRACE"]),
            (Profile::Restricted, _) => container.set("securityContext", restricted()),
            (Profile::Netadmin, _) => add_capabilities(container, &["NET_ADMIN", "NET_RAW"]),
            (Profile::Sysadmin, _) => container.child("securityContext").set("privileged", true),
        }
    }
}

impl Keep {
    fn apply(self, pod: &mut Tree) {
        for (field, is_kept) in [("labels", self.labels), ("annotations", self.annotations)] {
            if !is_kept {
                pod.child("metadata").remove(field);
            }
        }
        let probes =
            [("livenessProbe", self.liveness), ("readinessProbe", self.readiness), ("startupProbe", self.startup)];
        for container in pod.list_mut("spec.containers") {
            probes.iter().filter(|(_, is_kept)| !is_kept).for_each(|(field, _)| drop(container.remove(field)));
        }
        if !self.init_containers {
            pod.child("spec").remove("initContainers");
        }
    }
}

/// What the Pod Security level Restricted requires.
fn restricted() -> Tree {
    tree! {
        "allowPrivilegeEscalation" => false,
        "capabilities" => tree! { "drop" => list!["ALL"] },
        "runAsNonRoot" => true,
        "seccompProfile" => tree! { "type" => "RuntimeDefault" },
    }
}

fn add_capabilities(container: &mut Tree, names: &[&str]) {
    let added = container.child("securityContext.capabilities").list_entry("add");
    added.extend(names.iter().map(|name| Tree::from(*name)));
}

fn mount_root(pod: &mut Tree, name: &str) {
    let volume = tree! { "name" => "host-root", "hostPath" => tree! { "path" => "/" } };
    pod.child("spec").list_entry("volumes").push(volume);
    if let Some(container) = container_mut(pod, name) {
        container.list_entry("volumeMounts").push(tree! { "mountPath" => "/host", "name" => "host-root" });
    }
}

/// A container of any type.
pub(super) fn container_mut<'a>(pod: &'a mut Tree, name: &str) -> Option<&'a mut Tree> {
    let spec = pod.get_mut("spec")?.as_map_mut()?;
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let key = lists.into_iter().find(|key| {
        spec.get(key).and_then(Tree::as_list).is_some_and(|list| list.iter().any(|one| one.str("name") == name))
    })?;
    spec.get_mut(key)?.as_list_mut()?.iter_mut().find(|one| one.str("name") == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(list: &str) -> Tree {
        let container = tree! {
            "name" => "d", "livenessProbe" => tree! { "x" => 1 }, "startupProbe" => tree! { "x" => 1 },
            "securityContext" => tree! { "runAsUser" => 5 },
        };
        let mut spec = tree! { "initContainers" => list![tree! { "name" => "i" }] };
        spec.set(list, list![container]);
        tree! { "metadata" => tree! { "labels" => tree! { "a" => "b" }, "annotations" => tree! { "c" => "d" } }, "spec" => spec }
    }

    fn applied(profile: Profile, style: Style, keep: Keep) -> Tree {
        let mut pod = pod(if style == Style::Ephemeral { "ephemeralContainers" } else { "containers" });
        profile.apply(&mut pod, "d", style, keep);
        pod
    }

    fn security(profile: Profile, style: Style) -> String {
        let mut pod = applied(profile, style, Keep::default());
        let container = container_mut(&mut pod, "d").expect("it is there");
        String::from_utf8(api::json::encode(container.at("securityContext"), None)).expect("UTF-8")
    }

    #[test]
    fn profiles_set_the_security_context() {
        let check = |profile, style, want: &str| assert_eq!(security(profile, style), want, "{profile:?} {style:?}");
        check(Profile::Legacy, Style::Ephemeral, r#"{"runAsUser":5}"#);
        check(Profile::General, Style::Ephemeral, r#"{"capabilities":{"add":["SYS_PTRACE"]},"runAsUser":5}"#);
        check(Profile::General, Style::Node, "null");
        check(Profile::Baseline, Style::Copy, "null");
        check(
            Profile::Restricted,
            Style::Copy,
            r#"{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}"#,
        );
        check(Profile::Netadmin, Style::Node, r#"{"capabilities":{"add":["NET_ADMIN","NET_RAW"]},"runAsUser":5}"#);
        check(Profile::Sysadmin, Style::Ephemeral, r#"{"privileged":true,"runAsUser":5}"#);
        assert_eq!(Profile::parse("nope"), None);
    }

    #[test]
    fn only_some_profiles_get_the_node() {
        let check = |profile, has_namespaces: bool, has_files: bool| {
            let pod = applied(profile, Style::Node, Keep::default());
            assert_eq!(pod.bool("spec.hostPID") && pod.bool("spec.hostNetwork"), has_namespaces, "{profile:?}");
            assert_eq!(pod.list("spec.volumes").len() == 1, has_files, "{profile:?}");
            let mounts = pod.list("spec.containers")[0].list("volumeMounts");
            assert_eq!(mounts.first().is_some_and(|mount| mount.str("mountPath") == "/host"), has_files, "{profile:?}");
        };
        check(Profile::Legacy, true, true);
        check(Profile::General, true, true);
        check(Profile::Baseline, false, false);
        check(Profile::Restricted, false, false);
        check(Profile::Netadmin, true, false);
        check(Profile::Sysadmin, true, true);
    }

    #[test]
    fn copies_keep_what_flags_name() {
        let pod = applied(Profile::General, Style::Copy, Keep::default());
        assert!(pod.at("metadata.labels").is_null() && pod.at("metadata.annotations").is_null());
        assert!(pod.list("spec.containers")[0].at("livenessProbe").is_null());
        assert!(pod.at("spec.initContainers").is_null() && pod.bool("spec.shareProcessNamespace"));
        let keep = Keep { labels: true, liveness: true, init_containers: true, ..Keep::default() };
        let pod = applied(Profile::Sysadmin, Style::Copy, keep);
        assert_eq!(pod.str("metadata.labels.a"), "b");
        assert!(!pod.list("spec.containers")[0].at("livenessProbe").is_null());
        assert!(pod.list("spec.containers")[0].at("startupProbe").is_null());
        assert_eq!(pod.list("spec.initContainers").len(), 1);
        let legacy = applied(Profile::Legacy, Style::Copy, keep);
        assert!(legacy.at("metadata.labels").is_null() && !legacy.at("metadata.annotations").is_null());
        assert!(legacy.at("spec.shareProcessNamespace").is_null());
    }
}
