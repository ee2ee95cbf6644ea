//! A pod's allocated resources, which may differ from the desired ones, and the resources that its containers still run
//! with. They are stored beside the pod, where the next kubelet reads them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use api::quantity::Quantity;
use api::{Tree, json, tree};
use stdx::fs::ReplaceOptions;

use crate::model::resources::resizable;
use crate::volumes;

/// Resources of the containers that can be resized, by name; that of the pod as a whole by "".
pub(crate) type Amounts = BTreeMap<String, Tree>;

/// The pod as a whole among its containers.
pub(crate) const WHOLE: &str = "";

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Record {
    /// The allocated resources.
    pub(crate) allocated: Amounts,
    /// Containers that run with other resources, and those resources: empty except during a resize.
    pub(crate) behind: Amounts,
    /// A resize was allocated but not completed, even if only the pod's cgroup is left.
    pub(crate) is_unfinished: bool,
}

/// The desired resources of a pod.
pub(crate) fn desired_resources(pod: &Tree) -> Amounts {
    let whole = pod.at("spec").get("resources").map(|resources| (WHOLE.to_string(), resources.clone()));
    let each = resizable(pod).map(|spec| (spec.str("name").to_string(), spec.at("resources").clone()));
    each.chain(whole).collect()
}

/// The pod with other resources.
pub(crate) fn with(pod: &Tree, amounts: &Amounts) -> Tree {
    let mut made = pod.clone();
    let spec = made.child("spec");
    if let Some(resources) = amounts.get(WHOLE) {
        spec.set("resources", resources.clone());
    }
    for list in ["initContainers", "containers"] {
        // A missing list is not created.
        if !spec.has(list) {
            continue;
        }
        for container in spec.list_mut(list) {
            if let Some(resources) = amounts.get(container.str("name")) {
                container.set("resources", resources.clone());
            }
        }
    }
    made
}

/// Whether two sets of resources are the same, however they are written.
pub(crate) fn same(one: &Tree, other: &Tree) -> bool {
    ["requests", "limits"].iter().all(|side| amounts(one.at(side)) == amounts(other.at(side)))
}

fn amounts(list: &Tree) -> BTreeMap<String, Option<Quantity>> {
    let entries = list.as_map().into_iter().flat_map(|map| map.iter());
    let read = |(name, value): (&str, &Tree)| {
        let text = value.as_str().map(str::to_string).or_else(|| value.as_int().map(|number| number.to_string()));
        (name.to_string(), text.and_then(|text| Quantity::parse(&text).ok()))
    };
    entries.map(read).collect()
}

/// The containers whose resources differ.
pub(crate) fn differing(old: &Amounts, new: &Amounts) -> Vec<String> {
    let is_new = |(name, resources): &(&String, &Tree)| !same(old.get(*name).unwrap_or(&Tree::Null), resources);
    new.iter().filter(is_new).map(|(name, _)| name.clone()).collect()
}

impl Record {
    pub(crate) fn of(pod: &Tree) -> Record {
        Record { allocated: desired_resources(pod), ..Record::default() }
    }

    /// Allocates the desired resources. Running containers do not have them yet.
    pub(crate) fn allocate(&mut self, wanted: Amounts) {
        for name in differing(&self.allocated, &wanted) {
            let old = self.allocated.get(&name).cloned().unwrap_or_default();
            self.behind.entry(name).or_insert(old);
            self.is_unfinished = true;
        }
        self.allocated = wanted;
        // The allocation may equal the running resources again.
        let allocated = &self.allocated;
        self.behind.retain(|name, old| allocated.get(name).is_some_and(|new| !same(old, new)));
    }

    /// The resources that a container runs with.
    pub(crate) fn actual(&self, name: &str) -> Option<&Tree> {
        self.behind.get(name).or_else(|| self.allocated.get(name))
    }

    pub(crate) fn to_tree(&self) -> Tree {
        let listed = |amounts: &Amounts| {
            let mut map = api::Map::new();
            amounts.iter().for_each(|(name, resources)| drop(map.insert(name.as_str(), resources.clone())));
            Tree::from(map)
        };
        tree! {
            "allocated" => listed(&self.allocated),
            "behind" => listed(&self.behind),
            "unfinished" => self.is_unfinished,
        }
    }

    fn from_tree(tree: &Tree) -> Record {
        let read = |key: &str| tree.map(key).iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Record { allocated: read("allocated"), behind: read("behind"), is_unfinished: tree.bool("unfinished") }
    }

    /// None if there is no readable record: the pod then has its desired resources.
    pub(crate) fn read(file: &Path) -> Option<Record> {
        let bytes = std::fs::read(file).ok()?;
        match json::decode(&bytes) {
            Ok(tree) => Some(Record::from_tree(&tree)),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "failed to read allocated resources of pod");
                None
            }
        }
    }

    /// Whole or not at all.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        file.parent().map(volumes::create_dirs).transpose()?;
        ReplaceOptions::PRIVATE.write(file, &json::encode(&self.to_tree(), None))
    }
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    fn read(text: &str) -> Tree {
        yaml::decode(text.as_bytes()).expect("YAML")
    }

    #[test]
    fn containers_are_behind_until_updated() {
        let pod = |cpu: &str| {
            read(&format!(
                "spec: {{initContainers: [{{name: i, resources: {{requests: {{cpu: 9}}}}}}], containers: [{{name: a, resources: {{requests: {{cpu: '{cpu}'}}}}}}, {{name: b}}]}}"
            ))
        };
        let mut record = Record::of(&pod("100m"));
        assert_eq!(record.allocated.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(differing(&record.allocated, &desired_resources(&pod("0.1"))).is_empty(), "the same in other words");
        record.allocate(desired_resources(&pod("200m")));
        assert_eq!(record.actual("a").expect("a").str("requests.cpu"), "100m");
        record.allocate(desired_resources(&pod("300m")));
        assert_eq!(record.actual("a").expect("a").str("requests.cpu"), "100m", "it runs with the first still");
        let made = with(&pod("500m"), &record.allocated);
        assert_eq!(made.list("spec.containers")[0].str("resources.requests.cpu"), "300m");
        assert!(!with(&read("spec: {containers: [{name: a}]}"), &record.allocated).at("spec").has("initContainers"));
        record.allocate(desired_resources(&pod("100m")));
        assert!(record.behind.is_empty() && record.is_unfinished, "it came back to what runs, its group maybe not");
    }

    #[test]
    fn record_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("pods/u/allocated");
        assert_eq!(Record::read(&file), None);
        let mut record =
            Record::of(&read("spec: {resources: {limits: {cpu: 1}}, containers: [{name: a, resources: {}}]}"));
        record.behind.insert("a".to_string(), read("requests: {cpu: 1}"));
        record.write(&file).expect("a file");
        assert_eq!(Record::read(&file).as_ref(), Some(&record));
        std::fs::write(&file, "{").expect("a file");
        assert_eq!(Record::read(&file), None);
    }
}
