//! What of each manifest is in the cluster: a ConfigMap for each file, so that objects are pruned also if the file was
//! removed while no server ran, and so that `tiphys status` shows what is wrong.

use std::collections::BTreeSet;

use api::{Tree, tree};

/// The label of the ConfigMaps, and the annotation of the objects with the name of their file.
pub(crate) const LABEL: &str = "tiphys.io/manifest";
pub(crate) const NAMESPACE: &str = "kube-system";
/// Longer errors are cut.
const MAX_ERROR: usize = 1000;

/// The identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectRef {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty if the manifest has none.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ObjectRef {
    /// None if it is no object.
    pub(super) fn of(object: &Tree) -> Option<ObjectRef> {
        let text = |path: &str| object.str(path).to_string();
        let one = ObjectRef {
            api_version: text("apiVersion"),
            kind: text("kind"),
            namespace: text("metadata.namespace"),
            name: text("metadata.name"),
        };
        (!one.api_version.is_empty() && !one.kind.is_empty() && !one.name.is_empty()).then_some(one)
    }

    fn parse(line: &str) -> Option<ObjectRef> {
        let mut words = line.split(' ').map(str::to_string);
        Some(ObjectRef {
            api_version: words.next()?,
            kind: words.next()?,
            namespace: words.next()?,
            name: words.next()?,
        })
    }

    fn line(&self) -> String {
        format!("{} {} {} {}", self.api_version, self.kind, self.namespace, self.name)
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Inventory {
    pub(super) file: String,
    /// The machine that has the file.
    pub(super) host: String,
    pub(super) objects: BTreeSet<ObjectRef>,
    /// Why not all of it is applied; empty if it is.
    pub(super) error: String,
}

impl Inventory {
    pub(super) fn of_map(map: &Tree) -> Inventory {
        let data = map.map("data");
        Inventory {
            file: data.str("file").to_string(),
            host: data.str("host").to_string(),
            objects: data.str("objects").lines().filter_map(ObjectRef::parse).collect(),
            error: data.str("error").to_string(),
        }
    }

    /// The ConfigMap.
    pub(super) fn map(&self) -> Tree {
        let objects: Vec<String> = self.objects.iter().map(ObjectRef::line).collect();
        let error: String = self.error.chars().take(MAX_ERROR).collect();
        tree! {
            "apiVersion" => "v1",
            "kind" => "ConfigMap",
            "metadata" => tree! { "name" => map_name(&self.file), "namespace" => NAMESPACE, "labels" => tree! { LABEL => "true" } },
            "data" => tree! {
                "file" => self.file.as_str(),
                "host" => self.host.as_str(),
                "objects" => objects.join("\n"),
                "error" => error,
            },
        }
    }
}

/// The name of the ConfigMap of a file: readable, and unique by the hash of the file's name.
pub(super) fn map_name(file: &str) -> String {
    let readable: String =
        file.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    format!("manifest-{}-{:08x}", readable.trim_matches('-'), stdx::fnv::fnv1a_64(file.bytes()) & 0xffff_ffff)
}

/// The objects to delete: those of an earlier content that no file has any more. Files with errors keep theirs.
pub(super) fn pruned(known: &[Inventory], current: &[Inventory], host: &str) -> Vec<(String, BTreeSet<ObjectRef>)> {
    let kept: BTreeSet<&ObjectRef> = current.iter().flat_map(|one| &one.objects).collect();
    let is_current = |file: &str| current.iter().any(|one| one.file == file);
    known
        .iter()
        // Another server's file is not on this machine: only that server can tell that it was removed.
        .filter(|one| one.host == host || is_current(&one.file))
        .map(|one| {
            let gone = one.objects.iter().filter(|object| !kept.contains(object)).cloned().collect();
            (one.file.clone(), gone)
        })
        .filter(|(file, gone): &(String, BTreeSet<ObjectRef>)| !gone.is_empty() || !is_current(file))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(file: &str, host: &str, names: &[&str]) -> Inventory {
        let object = |name: &&str| ObjectRef {
            api_version: "v1".to_string(),
            kind: "ConfigMap".to_string(),
            namespace: String::new(),
            name: name.to_string(),
        };
        Inventory {
            file: file.to_string(),
            host: host.to_string(),
            objects: names.iter().map(object).collect(),
            error: String::new(),
        }
    }

    #[test]
    fn inventories_survive_in_config_maps() {
        let one = Inventory { error: "refused".to_string(), ..inventory("a b.yaml", "h", &["x", "y"]) };
        assert_eq!(Inventory::of_map(&one.map()), one);
        assert!(map_name("A b.yaml").starts_with("manifest-a-b-yaml-"));
        assert_ne!(map_name("a b.yaml"), map_name("a-b.yaml"));
    }

    #[test]
    fn removed_objects_are_pruned() {
        let check = |known: &[Inventory], current: &[Inventory], want: &[(&str, &[&str])]| {
            let found = pruned(known, current, "h");
            let found: Vec<(&str, Vec<&str>)> = found
                .iter()
                .map(|(file, objects)| (file.as_str(), objects.iter().map(|one| one.name.as_str()).collect()))
                .collect();
            let want: Vec<(&str, Vec<&str>)> = want.iter().map(|(file, names)| (*file, names.to_vec())).collect();
            assert_eq!(found, want);
        };
        let a = |names: &[&str]| inventory("a", "h", names);
        check(&[a(&["x", "y"])], &[a(&["x", "y"])], &[]);
        check(&[a(&["x", "y"])], &[a(&["x"])], &[("a", &["y"])]);
        check(&[a(&["x", "y"])], &[], &[("a", &["x", "y"])]);
        check(&[a(&["x"])], &[inventory("b", "h", &["x"])], &[("a", &[])]);
        check(&[inventory("a", "other", &["x"])], &[], &[]);
        check(&[inventory("a", "other", &["x", "y"])], &[a(&["x"])], &[("a", &["y"])]);
    }
}
